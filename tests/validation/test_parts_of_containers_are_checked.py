"""Parts of pods that only a kubelet looks at later: a real kube-apiserver 1.37 refused each of these, at the same place."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.gates import Gates
from dray.api.validation import validate_create

Json = dict[str, Any]


def paths(container: Json | None = None, **spec: Any) -> list[str]:
    whole = {"name": "c", "image": "i", **(container or {})}
    pod = {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "containers": [whole], **spec}
    obj = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": pod}
    return list(dict.fromkeys(error.path for error in validate_create("pods", obj, Gates.dray())))


SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
TERM = {"topologyKey": "zone", "namespaces": ["A"]}


@pytest.mark.parametrize(
    ("container", "path"),
    [
        ({"env": [{"name": "E", "valueFrom": {}}]}, "env[0].valueFrom"),
        ({"env": [{"name": "E", "valueFrom": {"fieldRef": {}}}]}, "env[0].valueFrom.fieldRef.fieldPath"),
        ({"envFrom": [{}]}, "envFrom"),
        ({"envFrom": [{"configMapRef": {}}]}, "envFrom[0].configMapRef.name"),
        ({"envFrom": [{"secretRef": {"name": "A_b"}}]}, "envFrom[0].secretRef.name"),
        ({"livenessProbe": {"httpGet": {}}}, "livenessProbe.httpGet.port"),
        ({"readinessProbe": {"tcpSocket": {"port": "UPPER"}}}, "readinessProbe.tcpSocket.port"),
        ({"startupProbe": {"exec": {}}}, "startupProbe.exec.command"),
        ({"lifecycle": {"preStop": {}}}, "lifecycle.preStop"),
        ({"resizePolicy": [{"restartPolicy": "NotRequired"}]}, "resizePolicy"),
        ({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}] * 2}, "resizePolicy[1]"),
        ({"securityContext": {"runAsUser": -1}}, "securityContext.runAsUser"),
        ({"securityContext": {"seccompProfile": {}}}, "securityContext.seccompProfile.type"),
        ({"ports": [{"containerPort": 1, "hostPort": 2, "protocol": "TCP"}] * 2}, "ports[1].hostPort"),
    ],
)
def test_of_containers(container: Json, path: str) -> None:
    assert paths(container) == [f"spec.containers[0].{path}"]


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"topologySpreadConstraints": [SPREAD, SPREAD]}, "topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}"),
        ({"topologySpreadConstraints": [SPREAD | {"minDomains": 0}]}, "topologySpreadConstraints[0].minDomains"),
        ({"topologySpreadConstraints": [SPREAD | {"nodeTaintsPolicy": ""}]}, "topologySpreadConstraints[0].nodeTaintsPolicy"),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
            "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespace",
        ),
        ({"hostAliases": [{"ip": "x"}]}, "hostAliases[0].ip"),
        ({"hostAliases": [{"ip": "::1", "hostnames": ["a b"]}]}, "hostAliases[0].hostnames[0]"),
        ({"os": {}}, "os.name"),
        ({"securityContext": {"fsGroup": -1}}, "securityContext.fsGroup"),
        ({"securityContext": {"sysctls": [{"name": "a.b"}, {"name": "a.b"}]}}, "securityContext.sysctls[1].name"),
        ({"volumes": [{"name": "v", "configMap": {}}]}, "volumes[0].configMap.name"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s", "items": [{"key": "k"}]}}]}, "volumes[0].secret.items[0].path"),
        ({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "-5"}}]}, "volumes[0].emptyDir.sizeLimit"),
        (
            {"initContainers": [{"name": "i", "image": "i", "startupProbe": {"exec": {"command": ["a"]}}}]},
            "initContainers[0].startupProbe",
        ),
    ],
)
def test_of_pods(spec: Json, path: str) -> None:
    assert paths(**spec) == [f"spec.{path}"]


def test_a_port_of_the_node_is_the_container_s_own_in_its_network() -> None:
    assert paths({"ports": [{"containerPort": 1, "hostPort": 2, "protocol": "TCP"}]}, hostNetwork=True) == [
        "spec.containers[0].ports[0].hostPort"
    ]


def test_what_is_right_passes() -> None:
    probe = {"httpGet": {"port": "http"}}
    container = {
        "ports": [{"name": "http", "containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
        "livenessProbe": probe,
        "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
        "env": [{"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
        "envFrom": [{"prefix": "X", "secretRef": {"name": "s"}}],
    }
    sidecar = {"name": "i", "image": "i", "restartPolicy": "Always", "startupProbe": probe}
    aliases = [{"ip": "010.0.0.1", "hostnames": ["a.b"]}, {"ip": "fe80::1"}]
    assert paths(container, initContainers=[sidecar], hostAliases=aliases, os={"name": "linux"}, hostNetwork=True) == []
