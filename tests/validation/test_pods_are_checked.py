"""Pods: what must be there, what must fit together, and what may change later."""

from __future__ import annotations

import pytest

C0 = "spec.containers[0]"


def container(**fields):
    return {"name": "c", "image": "i:1", **fields}


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ({"containers": []}, ["spec.containers"]),
        ({"containers": [container(name="")]}, [f"{C0}.name"]),
        ({"containers": [container(name="A_b")]}, [f"{C0}.name"]),
        ({"containers": [container(image="")]}, [f"{C0}.image"]),
        ({"containers": [container(), container()]}, ["spec.containers[1].name"]),
        ({"initContainers": [container()]}, ["spec.initContainers[0].name"]),
        ({"containers": [container(ports=[{"containerPort": 0}])]}, [f"{C0}.ports[0].containerPort"]),
        ({"containers": [container(ports=[{"containerPort": 65536}])]}, [f"{C0}.ports[0].containerPort"]),
        ({"containers": [container(ports=[{"containerPort": 1, "protocol": "ICMP"}])]}, [f"{C0}.ports[0].protocol"]),
        ({"containers": [container(env=[{"name": "a=b"}])]}, [f"{C0}.env[0].name"]),
        ({"containers": [container(volumeMounts=[{"name": "v", "mountPath": "/v"}])]}, [f"{C0}.volumeMounts[0].name"]),
        ({"restartPolicy": "Sometimes"}, ["spec.restartPolicy"]),
        ({"activeDeadlineSeconds": 0}, ["spec.activeDeadlineSeconds"]),
        ({"nodeSelector": {"a b": "c"}}, ["spec.nodeSelector"]),
        ({"tolerations": [{"operator": "Equal"}]}, ["spec.tolerations[0].operator"]),
        ({"tolerations": [{"key": "k", "effect": "Never"}]}, ["spec.tolerations[0].effect"]),
        ({"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}, ["spec.volumes[0].hostPath"]),
        ({"schedulingGates": [{"name": "g"}, {"name": "g"}]}, ["spec.schedulingGates[1]"]),
        ({"nodeName": "A_b"}, ["spec.nodeName"]),
    ],
)
def test_what_is_wrong_with_a_pod_is_named(api, pod, spec, paths):
    assert api.create("pods", pod(**spec)) == paths


@pytest.mark.parametrize(
    ("resources", "path"),
    [
        ({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}, ".requests"),
        ({"limits": {"cpu": "-1"}}, ".limits[cpu]"),
        ({"limits": {"gpu": "1"}}, ".limits[gpu]"),
        ({"requests": {"example.com/gpu": "1"}}, ".limits"),
        ({"limits": {"example.com/gpu": "2"}, "requests": {"example.com/gpu": "1"}}, ".requests"),
        ({"limits": {"example.com/gpu": "1500m"}}, ".limits[example.com/gpu]"),
        ({"limits": {"example.com/gpu": "9223372036854775807"}}, ".limits[example.com/gpu]"),
        ({"claims": [{"name": "nope"}]}, ".claims[0]"),
        ({"claims": [{"name": "gpu"}, {"name": "gpu"}]}, ".claims[1]"),
        ({"claims": [{"name": "gpu"}, {"name": "gpu", "request": "r"}]}, ".claims[1]"),
        ({"claims": [{"name": "gpu", "request": "A_b"}]}, ".claims[0].request"),
    ],
)
def test_resources_fit_together(api, pod, resources, path):
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    assert f"{C0}.resources{path}" in api.create("pods", pod(containers=[container(resources=resources)], resourceClaims=claims))


@pytest.mark.parametrize(
    ("resources", "paths"),
    [
        ({"limits": {"example.com/gpu": "1"}}, ["limits[example.com/gpu]"]),
        ({"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}, ["limits[deviceclass.resource.kubernetes.io/gpu]"]),
        ({"requests": {"ephemeral-storage": "1Gi"}}, ["requests[ephemeral-storage]"]),
        ({"limits": {"gpu": "1"}}, ["limits[gpu]"]),
        ({"requests": {"example.com/gpu": "1"}}, ["requests[example.com/gpu]", "limits"]),
        ({"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}}, ["limits"]),
        ({"claims": [{"name": "gpu"}]}, ["claims"]),
        ({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}, ["requests"]),
        ({"limits": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Mi"}, "requests": {"hugepages-2Mi": "2Mi"}}, []),
    ],
)
def test_a_pod_as_a_whole_asks_for_cpu_memory_and_huge_pages_only(api, pod, resources, paths):
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    found = api.create("pods", pod(resources=resources, resourceClaims=claims))
    assert [path for path in found if path.startswith("spec.resources.")] == [f"spec.resources.{path}" for path in paths]


def limited(**amounts):
    return {"limits": {name.replace("pages", "pages-2Mi"): amount for name, amount in amounts.items()}}


@pytest.mark.parametrize(
    ("whole", "of_containers", "of_inits", "expected"),
    [
        (
            {"requests": {"cpu": "1"}},
            [{"requests": {"cpu": "600m"}}, {"requests": {"cpu": "600m"}}],
            [],
            ("requests[cpu]", "1", "must be greater than or equal to aggregate container requests of 1200m"),
        ),
        (
            {"requests": {"memory": "1Gi"}},
            [{}],
            [{"requests": {"memory": "2Gi"}}],
            ("requests[memory]", "1Gi", "must be greater than or equal to aggregate container requests of 2Gi"),
        ),
        (
            limited(cpu="1", memory="4Gi"),
            [{}, limited(cpu="2", memory="4Gi")],
            [],
            ("containers[1][cpu].limits", "2", "must be less than or equal to pod limits of 1"),
        ),
        (
            limited(cpu="1", hugepages="4Mi"),
            [limited(cpu="1", hugepages="4Mi"), limited(cpu="1", hugepages="2Mi")],
            [],
            ("limits[hugepages-2Mi]", "4Mi", "must be greater than or equal to aggregate container limits of 6Mi"),
        ),
    ],
)
def test_a_pod_asks_as_a_whole_for_what_its_containers_need(api, pod, whole, of_containers, of_inits, expected):
    containers = [container(name=f"c{index}", resources=each) for index, each in enumerate(of_containers)]
    inits = [container(name=f"i{index}", resources=each) for index, each in enumerate(of_inits)]
    found = api.errors("pods", pod(resources=whole, containers=containers, initContainers=inits))
    assert [(error.path, error.type, error.value, error.message) for error in found] == [
        (f"spec.resources.{expected[0]}", "Invalid", *expected[1:])
    ]


def test_limits_of_containers_may_be_more_together_than_that_of_the_pod(api, pod):
    containers = [container(name=name, resources={"requests": {"cpu": "500m"}, **limited(cpu="2")}) for name in "ab"]
    inits = [container(name="i", resources={"requests": {"cpu": "1"}, **limited(cpu="8")})]
    whole = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    assert api.create("pods", pod(resources=whole, containers=containers, initContainers=inits)) == []


def test_templates_are_judged_like_their_pods(api, pod):
    spec = pod(resources=limited(cpu="1"), containers=[container(resources=limited(cpu="2"))])["spec"]
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    found = api.create(
        "deployments", {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    )
    assert found == ["spec.template.spec.resources.containers[0][cpu].limits"]


def test_ephemeral_containers_are_added_to_pods_that_run_and_never_made_with_them(api, pod):
    labels, spec = {"app": "a"}, pod(ephemeralContainers=[container(name="debug")])["spec"]
    template = {"metadata": {"labels": labels}, "spec": spec}
    workload = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    assert api.create("pods", {"metadata": {"name": "p"}, "spec": spec}) == ["spec.ephemeralContainers"]
    assert api.create("deployments", workload) == ["spec.template.spec.ephemeralContainers"]


def test_pods_for_windows_do_not_ask_as_a_whole(api, pod):
    (found,) = api.errors("pods", pod(resources=limited(gpu="1"), os={"name": "windows"}))
    assert (found.path, found.message) == ("spec.resources", "may not be set for a windows pod")


@pytest.mark.parametrize("resources", [{"hugepages-2Mi": "3Mi"}, {"hugepages-much": "2Mi"}, {"hugepages-0": "2Mi"}])
def test_huge_pages_are_whole_pages_of_a_size(api, pod, resources):
    (name,) = resources
    found = api.create("pods", pod(containers=[container(resources={"limits": {"cpu": "1", **resources}})]))
    assert f"{C0}.resources.limits[{name}]" in found


def test_requests_of_one_claim_can_be_used_apart(api, pod):
    resources = {"claims": [{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"}]}
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    assert api.create("pods", pod(containers=[container(resources=resources)], resourceClaims=claims)) == []


@pytest.mark.parametrize(
    ("claim", "path"),
    [
        ({"name": "a"}, ""),
        ({"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}, ""),
        ({"name": "A_b", "resourceClaimName": "x"}, ".name"),
        ({"name": "a", "resourceClaimName": "X_y"}, ".resourceClaimName"),
    ],
)
def test_a_pod_claim_has_one_source(api, pod, claim, path):
    assert api.create("pods", pod(resourceClaims=[claim])) == [f"spec.resourceClaims[0]{path}"]


@pytest.mark.parametrize(
    "change",
    [
        {"containers": [container(image="i:2")]},
        {"activeDeadlineSeconds": 5},
        {"tolerations": [{"key": "new", "operator": "Exists"}]},
    ],
)
def test_image_deadline_and_more_tolerations_may_change(api, pod, change):
    assert api.update("pods", pod(**change), pod()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"hostNetwork": True},
        {"resourceClaims": [{"name": "a", "resourceClaimName": "y"}]},
        {"containers": [container(command=["x"])]},
        {"nodeSelector": {"a": "b"}},
        {"schedulerName": "other"},
    ],
)
def test_the_rest_of_a_pod_is_fixed(api, pod, change):
    assert api.update("pods", pod(**change), pod()) == ["spec"]


def test_spaces_around_an_image_are_refused_in_pods_but_not_in_templates(api, pod):
    spaced = pod(containers=[container(image=" i:1")])
    assert api.create("pods", spaced) == [f"{C0}.image"]
    assert api.update("pods", spaced, pod()) == [f"{C0}.image"]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spaced["spec"]}
    assert api.create("deployments", {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}) == []


def test_containers_cannot_be_added(api, pod):
    assert api.update("pods", pod(containers=[container(), container(name="d")]), pod()) == ["spec.containers"]


def test_tolerations_cannot_be_removed(api, pod):
    assert api.update("pods", pod(), pod(tolerations=[{"key": "a", "operator": "Exists"}])) == ["spec.tolerations"]


def test_gates_can_only_be_removed(api, pod):
    gated = pod(schedulingGates=[{"name": "a"}])
    assert api.update("pods", pod(), gated) == []
    assert api.update("pods", gated, pod()) == ["spec.schedulingGates[0].name"]
    assert api.update("pods", pod(schedulingGates=[{"name": "a"}], nodeSelector={"rack": "1"}), gated) == []


EXTENDED = {"limits": {"example.com/gpu": "1"}, "requests": {"example.com/gpu": "1"}}


@pytest.mark.parametrize(
    ("mappings", "paths"),
    [
        ([{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}], []),
        ([], ["requestMappings"]),
        ([{"containerName": "x", "resourceName": "example.com/gpu", "requestName": "r"}], ["requestMappings[0].containerName"]),
        ([{"containerName": "c", "resourceName": "example.com/nic", "requestName": "r"}], ["requestMappings[0].resourceName"]),
        ([{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "A_b"}], ["requestMappings[0].requestName"]),
        ([{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}] * 2, ["requestMappings[1]"]),
    ],
)
def test_extended_resources_map_to_requests_of_the_special_claim(api, pod, mappings, paths):
    old = pod(containers=[container(resources=EXTENDED)])
    new = pod(containers=[container(resources=EXTENDED)])
    new["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": "special", "requestMappings": mappings}}
    expected = [f"status.extendedResourceClaimStatus.{path}" for path in paths]
    assert api.update("pods", new, old, subresource="status") == expected


@pytest.mark.parametrize(
    ("name", "unit", "path"),
    [
        ("claim:gpu/r", {"resourceID": "a", "health": "Healthy", "message": "fine"}, None),
        ("claim:gpu", {"resourceID": "a"}, "name"),
        ("claim:gpu/r", {"resourceID": "a", "health": "Poor"}, "resources[0].health"),
        ("claim:gpu/r", {"resourceID": "a", "message": ""}, "resources[0].message"),
        ("claim:gpu/r", {"resourceID": "a", "message": "x" * 1025}, "resources[0].message"),
    ],
)
def test_health_is_reported_for_resources_that_the_container_has(api, pod, name, unit, path):
    spec = {
        "containers": [container(resources={"claims": [{"name": "gpu", "request": "r"}]})],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
    }
    old, new = pod(**spec), pod(**spec)
    statuses = [{"name": "c", "allocatedResourcesStatus": [{"name": name, "resources": [unit]}]}]
    new["status"] = {"containerStatuses": statuses}
    expected = [f"status.containerStatuses[0].allocatedResourcesStatus[0].{path}"] if path else []
    assert api.update("pods", new, old, subresource="status") == expected


@pytest.mark.parametrize("size", [1, 10_000])
def test_pods_that_are_alike_are_judged_alike_whatever_their_size(api, pod, size):
    wrong, right = pod(), pod()
    for made in (wrong, right):
        made["spec"]["containers"][0]["args"] = ["x" * size]
    wrong["spec"]["containers"][0]["image"] = ""
    assert [api.create("pods", wrong) for _ in range(3)] == [["spec.containers[0].image"]] * 3
    assert api.create("pods", right) == []
