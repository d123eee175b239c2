"""Other people's software on ``dray up``, unchanged: controller-runtime, helm, JobSet's definitions, the Python client.

What needs nothing but an API runs on a real kube-apiserver too, as the control.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.upstream import binaries
from tests.real.upstream.client import Client, Refused
from tests.real.upstream.control_plane import Server
from tests.real.upstream.embedded import dray_up
from tests.real.upstream.process import Program

kubernetes: Any = pytest.importorskip("kubernetes")

Json = dict[str, Any]
SETS = "apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
JOBS = "apis/batch/v1/namespaces/{}/jobs"
LEASE = "apis/coordination.k8s.io/v1/namespaces/default/leases/operators.dray.dev"


def until(holds: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)
    return found


def absent(client: Client, path: str) -> bool:
    try:
        client.call("GET", path)
    except Refused as refused:
        return refused.code == 404
    return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """``dray up`` with everything that it has."""
    with dray_up(tmp_path_factory.mktemp("whole"), without="", arguments=("--hardware", "plain:2")) as server:
        yield server


# ------------------------------------------------------------------------------------------------------------- operators


@pytest.fixture(scope="session")
def operator(upstream: None) -> Path:
    try:
        return binaries.operator()
    except binaries.Unavailable as missing:
        pytest.skip(str(missing))


def define_job_sets(client: Client) -> None:
    folder = binaries.sources("sigs.k8s.io/jobset", binaries.OPERATORS)
    (file,) = folder.glob("config/components/crd/bases/*_jobsets.yaml")
    defined = yaml.safe_load(file.read_text())
    definitions = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    if absent(client, f"{definitions}/{defined['metadata']['name']}"):
        client.call("POST", definitions, defined)
    until(lambda: not absent(client, SETS.format("default")))


def job_set(name: str, seconds: int = 0) -> Json:
    annotations = {"dray.dev/finishes-after": f"{seconds}s"} if seconds else {}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example/train:1"}]}
    template = {"spec": {"completions": 2, "parallelism": 2, "template": {"metadata": {"annotations": annotations}, "spec": pod}}}
    workers = {"name": "workers", "replicas": 2, "template": template}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return kind | {"metadata": {"name": name}, "spec": {"replicatedJobs": [workers]}}


def running(operator: Path, server: Server, log: Path, name: str) -> Program:
    return Program(name, [operator, "-kubeconfig", server.kubeconfig, "-name", name], log)


def counted(client: Client, path: str) -> Any:
    return client.call("GET", path).get("status", {}).get("replicatedJobsStatus")


def test_an_operator_on_controller_runtime_does_its_work(
    operator: Path, cluster: Server, client: Client, namespace: str, tmp_path: Path
) -> None:
    define_job_sets(client)
    path = f"{SETS.format(namespace)}/training"
    with running(operator, cluster, tmp_path / "log", "first"):
        client.call("POST", SETS.format(namespace), job_set("training"))
        zeros = {"failed": 0, "ready": 0, "succeeded": 0, "suspended": 0}
        until(lambda: counted(client, path) == [{"name": "workers", "active": 2, **zeros}])
        jobs = client.call("GET", JOBS.format(namespace))["items"]
        assert [job["metadata"]["name"] for job in jobs] == ["training-workers-0", "training-workers-1"]
        assert {job["metadata"]["ownerReferences"][0]["kind"] for job in jobs} == {"JobSet"}
        client.call("DELETE", path)
        until(lambda: absent(client, path))
        assert not absent(client, f"api/v1/namespaces/{namespace}/configmaps/training-cleaned")


def test_what_the_definition_forbids_is_refused_alike(cluster: Server, client: Client, namespace: str, upstream: None) -> None:
    define_job_sets(client)
    wrong = job_set("wrong")
    wrong["spec"]["failurePolicy"] = {"maxRestarts": 1, "rules": [{"name": "r", "action": "Explode"}]}
    with pytest.raises(Refused, match=r'spec.failurePolicy.rules\[0\].action: Unsupported value: "Explode"'):
        client.call("POST", SETS.format(namespace), wrong)
    right = job_set("right")
    right["spec"]["failurePolicy"] = {"maxRestarts": 1}
    client.call("POST", SETS.format(namespace), right)
    change = {"spec": {"failurePolicy": {"maxRestarts": 2}}}
    with pytest.raises(Refused, match=r"spec\.failurePolicy: Invalid value: .*Value is immutable"):
        client.call("PATCH", f"{SETS.format(namespace)}/right", change, "application/merge-patch+json")


def test_a_job_set_runs_to_its_end_and_another_replica_takes_over(operator: Path, whole: Server, tmp_path: Path) -> None:
    client = Client(whole.kubeconfig)
    define_job_sets(client)
    with running(operator, whole, tmp_path / "first.log", "first") as first:
        until(lambda: not absent(client, LEASE))
        leader = client.call("GET", LEASE)["spec"]["holderIdentity"]
        with running(operator, whole, tmp_path / "second.log", "second"):
            client.call("POST", SETS.format("default"), job_set("one", seconds=1))
            done = until(lambda: _completed(client, "one"))
            assert done["message"] == "first"
            first.stop()
            until(lambda: client.call("GET", LEASE)["spec"]["holderIdentity"] not in ("", leader))
            client.call("POST", SETS.format("default"), job_set("two", seconds=1))
            assert until(lambda: _completed(client, "two"))["message"] == "second"


def _completed(client: Client, name: str) -> Json | None:
    status = client.call("GET", f"{SETS.format('default')}/{name}").get("status", {})
    return next((each for each in status.get("conditions", ()) if each["type"] == "Completed"), None)


# ------------------------------------------------------------------------------------------------------------------ helm

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n",
    "values.yaml": "replicas: 2\ncolour: red\n",
    "crds/widgets.yaml": """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.charts.example.com}
spec:
  group: charts.example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {colour: {type: string, enum: [red, blue]}}}
""",
    "templates/all.yaml": """
apiVersion: charts.example.com/v1
kind: Widget
metadata: {name: {{ .Release.Name }}}
spec: {colour: {{ .Values.colour }}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: {{ .Release.Name }}}
rules: [{apiGroups: [charts.example.com], resources: [widgets], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: {{ .Release.Name }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .Release.Name }}}
subjects: [{kind: ServiceAccount, name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      serviceAccountName: {{ .Release.Name }}
      containers: [{name: web, image: "registry.example/web:1", ports: [{containerPort: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {selector: {app: {{ .Release.Name }}}, ports: [{port: 80}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: {{ .Release.Name }}}
spec:
  maxReplicas: 4
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .Release.Name }}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: {{ .Release.Name }}}
spec:
  rules:
  - host: web.example.com
    http:
      paths: [{path: /, pathType: Prefix, backend: {service: {name: {{ .Release.Name }}, port: {number: 80}}}}]
""",
}


class Helm:
    def __init__(self, program: Path, server: Server, namespace: str, folder: Path) -> None:
        self.program, self.namespace, self.chart = program, namespace, folder / "chart"
        self.environment = {"HOME": str(folder), "KUBECONFIG": str(server.kubeconfig), "PATH": os.environ["PATH"]}
        self.client = Client(server.kubeconfig)
        for name, text in CHART.items():
            (self.chart / name).parent.mkdir(parents=True, exist_ok=True)
            (self.chart / name).write_text(text)

    def __call__(self, *arguments: str | Path, fails: bool = False) -> str:
        argv = [str(self.program), *map(str, arguments), "--namespace", self.namespace]
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def found(self, path: str) -> Json:
        return self.client.call("GET", path.format(self.namespace))


WIDGET = "apis/charts.example.com/v1/namespaces/{}/widgets/web"
DEPLOYMENT = "apis/apps/v1/namespaces/{}/deployments/web"


@pytest.fixture(scope="session")
def helm_program(upstream: None) -> Path:
    try:
        return binaries.helm()
    except binaries.Unavailable as missing:
        pytest.skip(str(missing))


def test_a_chart_with_a_definition_is_installed_upgraded_rolled_back_and_removed(
    helm_program: Path, cluster: Server, namespace: str, tmp_path: Path
) -> None:
    helm = Helm(helm_program, cluster, namespace, tmp_path)
    helm("install", "web", helm.chart)
    assert helm.found(WIDGET)["spec"] == {"colour": "red"}
    helm("upgrade", "web", helm.chart, "--set", "colour=blue,replicas=3")
    assert (helm.found(WIDGET)["spec"], helm.found(DEPLOYMENT)["spec"]["replicas"]) == ({"colour": "blue"}, 3)
    told = helm("upgrade", "web", helm.chart, "--set", "colour=green", fails=True)
    assert 'spec.colour: Unsupported value: "green": supported values: "red", "blue"' in told
    helm("rollback", "web", "1")
    assert (helm.found(WIDGET)["spec"], helm.found(DEPLOYMENT)["spec"]["replicas"]) == ({"colour": "red"}, 2)
    helm("uninstall", "web")
    until(lambda: absent(helm.client, WIDGET.format(namespace)))
    assert helm("list", "--short").strip() == ""


def test_helm_waits_until_what_it_installed_is_there(helm_program: Path, whole: Server, tmp_path: Path) -> None:
    helm = Helm(helm_program, whole, "team", tmp_path)
    helm("install", "web", helm.chart, "--create-namespace", "--wait", "--timeout", "60s")
    assert helm.found(DEPLOYMENT)["status"]["availableReplicas"] == 2
    slices = helm.found("apis/discovery.k8s.io/v1/namespaces/{}/endpointslices")["items"]
    assert [len(each["endpoints"]) for each in slices] == [2]
    helm("uninstall", "web", "--wait", "--timeout", "60s")
    assert absent(helm.client, DEPLOYMENT.format("team"))


# ------------------------------------------------------------------------------------------------ the official Python client


def test_an_informer_of_the_python_client_follows_what_happens(cluster: Server, namespace: str) -> None:
    informers: Any = pytest.importorskip("kubernetes.informer")
    with kubernetes.config.new_client_from_config(str(cluster.kubeconfig)) as api:
        core = kubernetes.client.CoreV1Api(api)
        core.create_namespaced_config_map(namespace, {"metadata": {"name": "old", "labels": {"seen": "yes"}}})
        followed = informers.SharedInformer(core.list_namespaced_config_map, namespace=namespace, label_selector="seen=yes")
        told: list[tuple[str, str]] = []
        for type_ in ("ADDED", "MODIFIED", "DELETED"):
            followed.add_event_handler(type_, lambda obj, type_=type_: told.append((type_, obj.metadata.name)))
        followed.start()
        try:
            until(lambda: ("ADDED", "old") in told)
            core.create_namespaced_config_map(namespace, {"metadata": {"name": "new", "labels": {"seen": "yes"}}})
            core.create_namespaced_config_map(namespace, {"metadata": {"name": "other"}})
            core.patch_namespaced_config_map("new", namespace, {"data": {"a": "b"}})
            core.patch_namespaced_config_map("old", namespace, {"metadata": {"labels": {"seen": "no"}}})
            until(lambda: ("DELETED", "old") in told)
            assert told == [("ADDED", "old"), ("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "old")]
            assert followed.cache.list_keys() == [f"{namespace}/new"]
        finally:
            threading.Thread(target=followed.stop, daemon=True).start()  # it may wait for its watch to end


CANDIDATE = """
import sys, time
from kubernetes import config
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

config.load_kube_config(sys.argv[1])
lock = LeaseLock("leader", sys.argv[2], sys.argv[3])
lead = lambda: (print("leads", flush=True), time.sleep(600))
leaderelection.LeaderElection(electionconfig.Config(lock, 4, 3, 1, lead, None)).run()
"""


def test_candidates_of_the_python_client_lead_one_after_the_other(cluster: Server, namespace: str, tmp_path: Path) -> None:
    pytest.importorskip("kubernetes.leaderelection.resourcelock.leaselock")
    script = tmp_path / "candidate.py"
    script.write_text(CANDIDATE)

    def candidate(name: str) -> Program:
        return Program(name, [sys.executable, script, cluster.kubeconfig, namespace, name], tmp_path / f"{name}.log")

    lease = f"apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/leader"
    with candidate("first") as first:
        first.wait_until(lambda: "leads" in first.text())
        with candidate("second") as second:
            time.sleep(2)
            assert "leads" not in second.text()
            first.stop()
            second.wait_until(lambda: "leads" in second.text())
            assert Client(cluster.kubeconfig).call("GET", lease)["spec"]["holderIdentity"] == "second"
