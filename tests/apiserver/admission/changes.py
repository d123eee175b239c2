"""What policies make of objects. The same cases are put to Dray and to a real kube-apiserver (``tests/real``).

``NS`` in a path or body stands for a namespace of the test. Requests are dry runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.apiserver.admission.cases import (
    CM,
    DEPLOYMENT,
    DEPLOYMENTS,
    EXISTING,
    POD,
    PODS,
    Json,
    config_map,
    rule,
)

MERGE = "application/merge-patch+json"


class Try(NamedTuple):
    """``made``: some values of what comes back, by their places; None is what is not there. ``said``: why it is refused by the
    policy; ``told``: the whole message, if it is refused by somebody else."""

    method: str
    path: str
    body: Json | None = None
    made: Json = {}
    said: str | tuple[str, ...] = ()
    told: str = ""
    code: int = 403
    reason: str = "Invalid"
    type: str = "application/json"
    user: str = ""
    extra: tuple[tuple[str, str], ...] = ()
    dry: bool = True


class Change(NamedTuple):
    """The first of ``asked`` comes back changed, or is refused: by this the test sees that the policy holds."""

    spec: Json
    asked: list[Try]
    binding: Json = {}
    before: tuple[tuple[str, Json], ...] = ()


def apply(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patch(expression: str) -> Json:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def changes(*mutations: Json, rules: list[Json] | None = None, **more: Any) -> Json:
    return {
        "matchConstraints": {"resourceRules": rules or [rule(operations=["CREATE", "UPDATE"])]},
        "reinvocationPolicy": "Never",
        "mutations": list(mutations),
        **more,
    }


def of(resources: str, group: str = "", *, operations: tuple[str, ...] = ("CREATE", "UPDATE")) -> list[Json]:
    return [rule(resources, group, operations=list(operations))]


def post(body: Json | None = None, path: str = CM, **more: Any) -> Try:
    return Try("POST", path, body or config_map(), **more)


def update(path: str = f"{CM}/old", body: Json | None = None, **more: Any) -> Try:
    return Try("PATCH", path, body or {"data": {"b": "2"}}, type=MERGE, **more)


def refused(*said: str, body: Json | None = None, path: str = CM, **more: Any) -> Try:
    return post(body, path, said=said, **more)


ON_DEPLOYMENTS: Json = {"rules": of("deployments", "apps")}
ON_PODS: Json = {"rules": of("pods")}
UPDATES: Json = {"rules": of("configmaps", operations=("UPDATE",))}
ATOMIC = "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs"
UNTYPED = "error applying patch: failed to convert patch object to typed object"
ACCOUNTS = "/api/v1/namespaces/NS/serviceaccounts"
ACCOUNT = ((ACCOUNTS, {"metadata": {"name": "sa"}}),)

CHANGES: dict[str, Change] = {
    # -------------------------------------------------------------------------------------------------- what is applied
    "a label": Change(
        changes(apply("Object{metadata: Object.metadata{labels: {'x': 'y'}}}")),
        [
            post(config_map(labels={"a": "b"}), made={"metadata.labels": {"a": "b", "x": "y"}}),
            post(config_map(labels={"x": "z"}), made={"metadata.labels.x": "y"}),
        ],
    ),
    "upstream's e2e spec": Change(
        changes(apply("Object{spec: Object.spec{replicas: 1337}}"), **ON_DEPLOYMENTS),
        [post(DEPLOYMENT, DEPLOYMENTS, made={"spec.replicas": 1337, "metadata.generation": 1})],
    ),
    "what is added is defaulted": Change(
        changes(
            apply(
                "Object{spec: Object.spec{containers: object.spec.containers.map(c, "
                "Object.spec.containers{name: c.name, image: 'r/' + c.image}) + "
                "[Object.spec.containers{name: 'side', image: 's'}]}}"
            ),
            **ON_PODS,
        ),
        [
            post(
                POD,
                PODS,
                made={
                    "spec.containers.0.image": "r/i",
                    "spec.containers.1.name": "side",
                    "spec.containers.1.terminationMessagePath": "/dev/termination-log",
                    "spec.containers.2": None,
                },
            )
        ],
    ),
    "a set": Change(
        changes(apply("Object{metadata: Object.metadata{finalizers: ['a/b', 'c/d']}}")),
        [post(config_map(finalizers=["x/y", "a/b"]), made={"metadata.finalizers": ["x/y", "a/b", "c/d"]})],
    ),
    "a number with a fraction of nothing": Change(
        changes(apply("Object{spec: Object.spec{replicas: 3.0}}"), **ON_DEPLOYMENTS),
        [post(DEPLOYMENT, DEPLOYMENTS, made={"spec.replicas": 3})],
    ),
    "optional fields": Change(
        changes(
            apply(
                "Object{?metadata: optional.none(), ?data: object.?data.x.hasValue() ? optional.of({'y': object.data.x}) : "
                "optional.none()}"
            )
        ),
        [post(made={"data.y": "1"}), post(config_map(data={"a": "1"}), made={"data.y": None})],
    ),
    "a field that is unknown": Change(
        changes(apply("Object{foo: 'x'}")), [refused(f"{UNTYPED}: .foo: field not declared in schema")]
    ),
    "a text for a number": Change(
        changes(apply("Object{spec: Object.spec{replicas: 'x'}}"), **ON_DEPLOYMENTS),
        [refused(f"{UNTYPED}: .spec.replicas: expected numeric (int or float), got string", body=DEPLOYMENT, path=DEPLOYMENTS)],
    ),
    "a text for a map": Change(changes(apply("Object{data: 'x'}")), [refused(f"{UNTYPED}: .data: expected map, got &{{x}}")]),
    "a number for a text": Change(
        changes(apply("Object{data: {'x': 1}}")),
        [refused(f"{UNTYPED}: .data.x: expected string, got &value.valueUnstructured{{Value:1}}")],
    ),
    "nothing for a number": Change(
        changes(apply("Object{spec: Object.spec{replicas: null}}"), **ON_DEPLOYMENTS),
        [
            refused(
                f"{UNTYPED}: .spec.replicas: expected numeric (int or float), got structpb.NullValue",
                body=DEPLOYMENT,
                path=DEPLOYMENTS,
            )
        ],
    ),
    "an atomic struct": Change(
        changes(apply("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'x': 'y'}}}}"), **ON_DEPLOYMENTS),
        [refused(f"{ATOMIC}: .spec.selector", body=DEPLOYMENT, path=DEPLOYMENTS)],
    ),
    "an atomic list": Change(
        changes(apply("Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', command: ['x']}]}}"), **ON_PODS),
        [refused(f"{ATOMIC}: .spec.containers[0].command", body=POD, path=PODS)],
    ),
    "an element twice": Change(
        changes(
            apply(
                "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c'}, Object.spec.containers{name: 'c'}]}}"
            ),
            **ON_PODS,
        ),
        [refused(f'{UNTYPED}: .spec.containers: duplicate entries for key [name="c"]', body=POD, path=PODS)],
    ),
    "an object in another place": Change(
        changes(apply("Object{spec: Object.spec{selector: Object.spec.wrong{}}}"), **ON_DEPLOYMENTS),
        [
            refused(
                'type mismatch: unexpected type name "Object.spec.wrong", expected "Object.spec.selector", which matches field '
                "name path from root Object type",
                body=DEPLOYMENT,
                path=DEPLOYMENTS,
            )
        ],
    ),
    "keys that are numbers": Change(
        changes(apply("Object{data: {1: 'x'}}")), [refused("invalid return type: *dynamic.ObjectVal")]
    ),
    "what is not right in the end": Change(
        changes(apply("Object{data: {'a b': 'x'}}")),
        [
            post(
                told='ConfigMap "a" is invalid: data[a b]: Invalid value: "a b": a valid config key must consist of '
                "alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for "
                "validation is '[-._a-zA-Z0-9]+')",
                code=422,
            )
        ],
    ),
    # -------------------------------------------------------------------------------------------------- what is patched
    "a patch": Change(
        changes(patch("[JSONPatch{op: 'add', path: '/data', value: {'k': jsonpatch.escapeKey('a/b~c')}}]")),
        [post(made={"data": {"k": "a~1b~0c"}})],
    ),
    "a patch with a key": Change(
        changes(patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'v'}]")),
        [post(config_map(labels={"x": "y"}), made={"metadata.labels": {"x": "y", "a/b": "v"}})],
    ),
    "a patch with an object": Change(
        changes(
            patch(
                "[JSONPatch{op: 'add', path: '/spec/template/spec/containers/-', value: Object.spec.template.spec.containers{"
                "name: 'x', image: 'y', ports: [Object.spec.template.spec.containers.ports{containerPort: 80}]}}]"
            ),
            **ON_DEPLOYMENTS,
        ),
        [
            post(
                DEPLOYMENT,
                DEPLOYMENTS,
                made={"spec.template.spec.containers.1.ports": [{"containerPort": 80, "protocol": "TCP"}]},
            )
        ],
    ),
    "a patch that tests, copies and moves": Change(
        changes(
            patch(
                "[JSONPatch{op: 'test', path: '/data/x', value: '1'}, JSONPatch{op: 'copy', from: '/data/x', path: '/data/c'}, "
                "JSONPatch{op: 'move', from: '/data/x', path: '/data/m'}]"
            )
        ),
        [post(made={"data": {"c": "1", "m": "1"}}), post(config_map(data={"x": "2"}), made={"data": {"x": "2"}})],
    ),
    "a patch or none": Change(
        changes(patch("has(object.data.x) ? [JSONPatch{op: 'remove', path: '/data/x'}] : []")),
        [post(config_map(data={"x": "1", "y": "2"}), made={"data": {"y": "2"}}), post(config_map(data={"y": "2"}))],
    ),
    "a patch with times and bytes": Change(
        changes(
            patch(
                "[JSONPatch{op: 'add', path: '/data/t', value: timestamp('2020-01-01T00:00:00Z')}, "
                "JSONPatch{op: 'add', path: '/data/d', value: duration('90s')}, "
                "JSONPatch{op: 'add', path: '/data/b', value: b'abc'}]"
            )
        ),
        [post(made={"data": {"x": "1", "t": "2020-01-01T00:00:00Z", "d": "90s", "b": "YWJj"}})],
    ),
    "a patch of what is not there": Change(
        changes(patch("[JSONPatch{op: 'add', path: '/spec/x', value: 'v'}]")),
        [refused('JSON Patch: add operation does not apply: doc is missing path: "/spec/x": missing value')],
    ),
    "a patch that removes what is not there": Change(
        changes(patch("[JSONPatch{op: 'remove', path: '/data/y'}]")),
        [refused("JSON Patch: error in remove for path: '/data/y': Unable to remove nonexistent key: y: missing value")],
    ),
    "a patch that replaces in what is not there": Change(
        changes(patch("[JSONPatch{op: 'replace', path: '/spec/x', value: 1}]")),
        [refused("JSON Patch: replace operation does not apply: doc is missing path: /spec/x: missing value")],
    ),
    "a patch that copies from what is not there": Change(
        changes(patch("[JSONPatch{op: 'copy', from: '/spec/x', path: '/data/x'}]")),
        [refused("JSON Patch: copy operation does not apply: doc is missing from path: /spec/x: missing value")],
    ),
    "a patch of an element that is not there": Change(
        changes(patch("[JSONPatch{op: 'add', path: '/metadata/finalizers/3', value: 'a/b'}]")),
        [
            refused(
                "JSON Patch: error in add for path: '/metadata/finalizers/3': Unable to access invalid index: 3: invalid index "
                "referenced",
                body=config_map(finalizers=["e/f"]),
            )
        ],
    ),
    "a patch of no sort": Change(
        changes(patch("[JSONPatch{op: 'foo', path: '/data/x'}]")), [refused("JSON Patch: Unexpected kind: foo")]
    ),
    "a patch without a path": Change(
        changes(patch("[JSONPatch{op: 'add', value: 'x'}]")),
        [refused('JSON Patch: add operation does not apply: doc is missing path: "": missing value')],
    ),
    "a patch that leaves no object": Change(
        changes(patch("[JSONPatch{op: 'add', path: '/foo', value: 1}]"), failurePolicy="Ignore"),
        [post(told='Internal error occurred: strict decoding error: unknown field "foo"', code=500, reason="InternalError")],
    ),
    "a patch with an object in another place": Change(
        changes(patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: Object.metadata.labels{x: Object.foo{}}}]")),
        [
            refused(
                'type mismatch: unexpected type name "Object.foo", expected "Object.metadata.labels.x", which matches field name '
                "path from root Object type"
            )
        ],
    ),
    # -------------------------------------------------------------------------------------------- what is known and asked
    "what a policy sees": Change(
        changes(
            apply(
                "Object{data: {'keys': string(object.metadata.all(k, k in ['generateName', 'namespace', 'managedFields'])), "
                "'kind': string(object.kind + object.apiVersion), 'name': string(has(request.name)), "
                "'dry': string(request.dryRun), 'operation': string(request.operation), "
                "'namespace': string(namespaceObject.metadata.name)}}"
            )
        ),
        [
            post(
                config_map(generateName="g-"),
                made={
                    "data": {
                        "x": "1",
                        "keys": "true",
                        "kind": "ConfigMapv1",
                        "name": "false",
                        "dry": "true",
                        "operation": "CREATE",
                        "namespace": "NS",
                    }
                },
            )
        ],
    ),
    "what a policy sees of an update": Change(
        changes(
            apply(
                "Object{data: {'was': string(oldObject.data.k), 'is': string(object.data.b), 'by': string(request.operation)}}"
            ),
            **UPDATES,
        ),
        [update(made={"data": {"k": "1", "b": "2", "was": "1", "is": "2", "by": "UPDATE"}})],
        before=EXISTING,
    ),
    "a server-side apply": Change(
        changes(apply("Object{data: {'y': '2'}}")),
        [
            Try(
                "PATCH",
                f"{CM}/new?fieldManager=me",
                config_map("new"),
                made={"data": {"x": "1", "y": "2"}, "metadata.managedFields.0.fieldsV1": {"f:data": {"f:x": {}}}},
                type="application/apply-patch+yaml",
            )
        ],
    ),
    "what policies change nobody owns": Change(
        changes(apply("Object{data: {'y': '2'}}")),
        [
            post(made={"data.y": "2", "metadata.managedFields.0.fieldsV1": {"f:data": {".": {}, "f:x": {}}}}),
            update(made={"data.y": "2", "metadata.managedFields.1.fieldsV1": None}, body={"data": {"b": "2"}}),
        ],
        before=EXISTING,
    ),
    "variables": Change(
        changes(
            apply("Object{data: {'n': variables.b, 'm': variables.b}}"),
            variables=[{"name": "a", "expression": "object.data.x"}, {"name": "b", "expression": "variables.a + '!'"}],
        ),
        [post(made={"data": {"x": "1", "n": "1!", "m": "1!"}})],
    ),
    "conditions": Change(
        changes(apply("Object{data: {'n': '1'}}"), matchConditions=[{"name": "c", "expression": "object.data.x == '1'"}]),
        [post(made={"data.n": "1"}), post(config_map(data={"x": "2"}), made={"data.n": None})],
    ),
    "a condition that fails": Change(
        changes(apply("Object{data: {'n': '1'}}"), matchConditions=[{"name": "c", "expression": "object.data.b == '1'"}]),
        [refused("expression 'object.data.b == '1'' resulted in error: no such key: b")],
    ),
    "the authorizer": Change(
        changes(apply("Object{data: {'n': string(authorizer.group('').resource('pods').check('get').allowed())}}")),
        [post(made={"data.n": "true"})],
    ),
    # Of another kind than other cases: once its last policy with params of a kind is gone, a real server hears of no new ones.
    "params": Change(
        changes(
            apply("Object{data: {'of-' + params.metadata.name: string(params.type)}}"),
            paramKind={"apiVersion": "v1", "kind": "Secret"},
        ),
        [post(made={"data": {"x": "1", "of-one": "a/b", "of-two": "c/d"}})],
        {"paramRef": {"selector": {"matchLabels": {"changes": "yes"}}, "parameterNotFoundAction": "Deny"}},
        tuple(
            ("/api/v1/namespaces/NS/secrets", {"metadata": {"name": name, "labels": {"changes": "yes"}}, "type": sort})
            for name, sort in (("one", "a/b"), ("two", "c/d"))
        ),
    ),
    "a param that is missing": Change(
        changes(apply("Object{}"), paramKind={"apiVersion": "v1", "kind": "LimitRange"}),
        [
            refused(
                "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
                reason="Forbidden",
            )
        ],
        {"paramRef": {"name": "missing", "parameterNotFoundAction": "Deny"}},
    ),
    # ------------------------------------------------------------------------------------------------------- what fails
    "an expression that fails": Change(
        changes(apply("Object{data: {'n': object.data.missing}}"), apply("Object{data: {'m': object.data.gone}}")),
        [
            refused(
                "expression 'Object{data: {'n': object.data.missing}}' resulted in error: no such key: missing",
                "expression 'Object{data: {'m': object.data.gone}}' resulted in error: no such key: gone",
            )
        ],
    ),
    "an expression that may fail": Change(
        changes(
            apply("Object{data: {'a': '1'}}"),
            apply("Object{data: {'n': object.data.missing}}"),
            apply("Object{data: {'b': string(object.data.a)}}"),
            failurePolicy="Ignore",
        ),
        [post(made={"data": {"x": "1", "a": "1", "b": "1"}})],
    ),
    # --------------------------------------------------------------------------------------------------- done once more
    "once": Change(
        changes(apply("Object{data: {'n': string(int(string(object.data.?n.orValue('0'))) + 1)}}")),
        [post(made={"data.n": "1"})],
    ),
    "once more": Change(
        changes(
            apply("Object{data: {'n': string(int(string(object.data.?n.orValue('0'))) + 1)}}"), reinvocationPolicy="IfNeeded"
        ),
        [post(made={"data.n": "2"})],
    ),
    # ---------------------------------------------------------------------------------------- what nobody can be changed to
    "another name": Change(
        changes(patch("[JSONPatch{op: 'replace', path: '/metadata/name', value: 'other'}]")),
        [
            post(made={"metadata.name": "other"}),
            update(told='ConfigMap "other" is invalid: metadata.name: Invalid value: "other": field is immutable', code=422),
        ],
        before=EXISTING,
    ),
    "another namespace": Change(
        changes(patch("[JSONPatch{op: 'replace', path: '/metadata/namespace', value: 'other'}]")),
        [
            post(
                told="the namespace of the provided object does not match the namespace sent on the request",
                code=400,
                reason="BadRequest",
            ),
            update(
                told="the namespace of the provided object does not match the namespace sent on the request",
                code=400,
                reason="BadRequest",
            ),
        ],
        before=EXISTING,
    ),
    "another uid": Change(
        changes(patch("[JSONPatch{op: 'add', path: '/metadata/uid', value: 'other'}]"), **UPDATES),
        [update(told='ConfigMap "old" is invalid: metadata.uid: Invalid value: "other": field is immutable', code=422)],
        before=EXISTING,
    ),
    "another version": Change(
        changes(patch("[JSONPatch{op: 'replace', path: '/metadata/resourceVersion', value: '1'}]"), **UPDATES),
        [
            update(
                told='Operation cannot be fulfilled on configmaps "old": the object has been modified; please apply your changes '
                "to the latest version and try again",
                code=409,
                reason="Conflict",
            )
        ],
        before=EXISTING,
    ),
    "what the server gives": Change(
        changes(
            patch(
                "[JSONPatch{op: 'add', path: '/metadata/uid', value: 'other'}, JSONPatch{op: 'add', path: "
                "'/metadata/generation', value: 7}, JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"
            ),
            **ON_DEPLOYMENTS,
        ),
        [post(DEPLOYMENT, DEPLOYMENTS, made={"metadata.labels": {"a": "b"}, "metadata.generation": 1})],
    ),
    # ------------------------------------------------------------------------------------------------------ subresources
    "a status": Change(
        changes(
            apply("Object{spec: Object.spec{replicas: 77}, status: Object.status{observedGeneration: 7}}"),
            rules=of("deployments/status", "apps"),
        ),
        [
            update(
                f"{DEPLOYMENTS}/d/status",
                {"status": {"replicas": 3}},
                made={"spec.replicas": 2, "status": {"observedGeneration": 7, "replicas": 3}},
            )
        ],
        before=((DEPLOYMENTS, DEPLOYMENT),),
    ),
    "a scale": Change(
        changes(
            patch("[JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas + oldObject.spec.replicas}]"),
            rules=of("deployments/scale", "apps"),
        ),
        [update(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 3}}, made={"kind": "Scale", "spec.replicas": 5})],
        before=((DEPLOYMENTS, DEPLOYMENT),),
    ),
    "a scale has no type": Change(
        changes(apply("Object{spec: Object.spec{replicas: 7}}"), rules=of("deployments/scale", "apps")),
        [
            update(
                f"{DEPLOYMENTS}/d/scale",
                {"spec": {"replicas": 3}},
                said=(f"{UNTYPED}: no corresponding type for autoscaling/v1, Kind=Scale",),
            )
        ],
        before=((DEPLOYMENTS, DEPLOYMENT),),
    ),
    "a token": Change(
        changes(patch("[JSONPatch{op: 'add', path: '/spec/expirationSeconds', value: 7200}]"), rules=of("serviceaccounts/token")),
        [
            post(
                {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}},
                f"{ACCOUNTS}/sa/token",
                made={"spec.expirationSeconds": 7200},
            )
        ],
        before=ACCOUNT,
    ),
    "an eviction has no type": Change(
        changes(apply("Object{metadata: Object.metadata{annotations: {'x': 'y'}}}"), rules=of("pods/eviction")),
        [
            refused(
                f"{UNTYPED}: no corresponding type for policy/v1, Kind=Eviction",
                body={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "NS"}},
                path=f"{PODS}/p/eviction",
            )
        ],
        before=((PODS, POD),),
    ),
    "a connection": Change(
        changes(apply("Object{command: ['x']}"), rules=of("pods/exec", operations=("*",))),
        [
            Try(
                "POST",
                f"{PODS}/p/exec?command=sh&stdout=true",
                said=(f"{UNTYPED}: no corresponding type for /v1, Kind=PodExecOptions",),
                dry=False,
            )
        ],
        before=((PODS, POD),),
    ),
}
