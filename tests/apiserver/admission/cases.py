"""What policies say of requests. The same cases are put to Dray and to a real kube-apiserver (``tests/real``).

``NS`` in a path or body stands for a namespace of the test, with the label ``team: a``. Requests are dry runs, but for
connections, which cannot be.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Json = dict[str, Any]

CM = "/api/v1/namespaces/NS/configmaps"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
BOB = "system:serviceaccount:default:driver"


class Ask(NamedTuple):
    """``said``: the end of the message of a refusal; empty for what is accepted."""

    method: str
    path: str
    body: Json | None = None
    code: int = 422
    said: str = ""
    user: str = ""
    extra: tuple[tuple[str, str], ...] = ()
    warned: str = ""
    type: str = "application/json"
    dry: bool = True


class Case(NamedTuple):
    """The first of ``asked`` is refused or warned of: by this the test sees that the policy holds."""

    spec: Json
    asked: list[Ask]
    binding: Json = {}
    before: tuple[tuple[str, Json], ...] = ()


def check(expression: str, **more: Any) -> Json:
    return {"expression": expression, **more}


def config_map(name: str = "a", data: Json | None = None, **metadata: Any) -> Json:
    named = {} if "generateName" in metadata else {"name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**named, **metadata}, "data": data or {"x": "1"}}


def rule(resources: str = "configmaps", group: str = "", version: str = "v1", **more: Any) -> Json:
    return RULE | {"apiGroups": [group], "apiVersions": [version], "resources": resources.split(",")} | more


def says(expression: str, **more: Any) -> Json:
    """A policy that refuses everything and says what an expression makes."""
    rules = more.pop("rules", [RULE])
    return {
        "matchConstraints": {"resourceRules": rules},
        "validations": [check("false", messageExpression=expression)],
        **more,
    }


def only(*validations: Json, rules: list[Json] | None = None, **more: Any) -> Json:
    return {"matchConstraints": {"resourceRules": rules or [RULE]}, "validations": list(validations), **more}


def post(said: str, body: Json | None = None, path: str = CM, **more: Any) -> Ask:
    return Ask("POST", path, body or config_map(), said=said, **more)


FINE = post("")
DEPLOYMENT: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}
DEPLOYMENTS = "/apis/apps/v1/namespaces/NS/deployments"
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
PODS = "/api/v1/namespaces/NS/pods"
CLAIM_SPEC = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
EXISTING = ((CM, config_map("old", {"k": "1"})),)
PARAM_KIND = {"apiVersion": "v1", "kind": "ConfigMap"}
LIMITS = (
    (CM, config_map("limit", {"most": "3"}, labels={"limits": "yes"})),
    (CM, config_map("other", {"most": "1"}, labels={"limits": "yes"})),
)


def slice_of(node: str) -> Json:
    spec = {"driver": "gpu.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "nodeName": node}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "slice"}, "spec": spec}


SLICES = "/apis/resource.k8s.io/v1/resourceslices"
ON_NODE = (("authentication.kubernetes.io/node-name", "node-1"),)
# As drivers ship it; theirs names a version.
DRIVER_POLICY = {
    "failurePolicy": "Fail",
    "matchConstraints": {"resourceRules": [rule("resourceslices", "resource.k8s.io", operations=["CREATE", "UPDATE", "DELETE"])]},
    "matchConditions": [{"name": "isRestrictedUser", "expression": f'request.userInfo.username == "{BOB}"'}],
    "variables": [
        {
            "name": "userNodeName",
            "expression": "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')",
        },
        {
            "name": "objectNodeName",
            "expression": '(request.operation == "DELETE" ? oldObject : object).spec.?nodeName.orValue("")',
        },
    ],
    "validations": [
        check('variables.userNodeName != ""', message="no node association found for user"),
        check(
            "variables.userNodeName == variables.objectNodeName",
            messageExpression='"this user running on node \'"+variables.userNodeName+"\' may not modify " + '
            '(variables.objectNodeName == "" ?"cluster resourceslices" : '
            '"resourceslices on node \'"+variables.objectNodeName+"\'")',
        ),
    ],
}

CASES: dict[str, Case] = {
    "a message": Case(
        only(check("has(object.data.k)", message=" k is missing ")), [post("k is missing"), post("", config_map("b", {"k": "1"}))]
    ),
    "no message": Case(only(check(" object.data.size() == 2 ")), [post("failed expression: object.data.size() == 2")]),
    "a reason": Case(only(check("false", message="no", reason="Forbidden")), [post("no", code=403)]),
    "a reason of size": Case(only(check("false", message="no", reason="RequestEntityTooLarge")), [post("no", code=413)]),
    "the first of several": Case(
        only(check("true"), check("false", message="one", reason="Forbidden"), check("false", message="two")),
        [post("one", code=403)],
    ),
    "a message that is made": Case(
        says("'name: ' + object.metadata.name + ', ' + string(object.data.size())"), [post("name: a, 1")]
    ),
    "a message that cannot be made": Case(
        only(check("false", messageExpression="string(object.data.missing)", message="plain")), [post("plain")]
    ),
    "a message of lines": Case(only(check("false", messageExpression="'a\\nb'", message="plain")), [post("plain")]),
    "an expression that fails": Case(
        only(check("object.data.k == '1'")),
        [post("expression 'object.data.k == '1'' resulted in error: no such key: k"), post("", config_map("b", {"k": "1"}))],
    ),
    "an expression that may fail": Case(
        only(check("object.data.k == '1'"), failurePolicy="Ignore"),
        [post("failed expression: object.data.k == '1'", config_map("b", {"k": "2"})), FINE],
    ),
    "variables": Case(
        says(
            "variables.b",
            variables=[
                {"name": "a", "expression": "object.metadata.name"},
                {"name": "b", "expression": "variables.a + '-' + variables.a"},
            ],
        ),
        [post("a-a")],
    ),
    "a variable that fails": Case(
        only(check("variables.a == '1'"), variables=[{"name": "a", "expression": "object.data.k"}]),
        [
            post(
                "expression 'variables.a == '1'' resulted in error: composited variable \"a\" fails to evaluate: no such key: k"
            ),
            post("", config_map("b", {"k": "1"})),
        ],
    ),
    "a variable that nobody asks for": Case(
        only(check("object.metadata.name != 'a'", message="named a"), variables=[{"name": "x", "expression": "object.data.k"}]),
        [post("named a"), post("", config_map("b"))],
    ),
    "conditions": Case(
        only(
            check("false", message="matched"),
            matchConditions=[
                {"name": "one", "expression": "object.metadata.name.startsWith('m')"},
                {"name": "two", "expression": "request.operation == 'CREATE'"},
            ],
        ),
        [post("matched", config_map("match")), FINE],
    ),
    "a condition that fails": Case(
        only(check("true"), matchConditions=[{"name": "one", "expression": "object.data.k == '1'"}]),
        [post("expression 'object.data.k == '1'' resulted in error: no such key: k"), post("", config_map("b", {"k": "2"}))],
    ),
    "a condition that does not hold beside one that fails": Case(
        only(
            check("false", message="no"),
            matchConditions=[
                {"name": "one", "expression": "object.data.k == '1'"},
                {"name": "two", "expression": "object.metadata.name != 'b'"},
            ],
        ),
        [post("no", config_map("a", {"k": "1"})), post("", config_map("b"))],
    ),
    "the request": Case(
        says(
            "request.operation + ' ' + request.kind.kind + ' ' + request.resource.resource + ' ' + request.name + ' ' + "
            "request.requestResource.version + ' ' + string(request.dryRun) + ' ' + string(has(request.subResource)) + ' ' + "
            "string(request.namespace == object.metadata.namespace) + ' ' + request.options.kind"
        ),
        [
            post("CREATE ConfigMap configmaps a v1 true false true CreateOptions"),
            Ask(
                "PATCH",
                f"{CM}/old",
                {"data": {"k": "2"}},
                said="UPDATE ConfigMap configmaps old v1 true false true UpdateOptions",
                type="application/merge-patch+json",
            ),
            Ask(
                "PUT",
                f"{CM}/old",
                config_map("old"),
                said="UPDATE ConfigMap configmaps old v1 true false true UpdateOptions",
            ),
        ],
        before=EXISTING,
    ),
    "the user": Case(
        says("request.userInfo.username + ' ' + request.userInfo.groups.join(',') + ' ' + string(has(request.userInfo.extra))"),
        [
            post(f"{BOB} system:masters,system:authenticated false", user=BOB),
            post(f"{BOB} system:masters,system:authenticated true", user=BOB, extra=ON_NODE),
        ],
    ),
    "the old object": Case(
        says("string(oldObject == null) + ' ' + string(object == null) + ' ' + string(has(oldObject.data))"),
        [
            post("true false false"),
            Ask("PUT", f"{CM}/old", config_map("old"), said="false false true"),
            Ask("DELETE", f"{CM}/old", said="false true true"),
        ],
        before=EXISTING,
    ),
    "a field of nothing": Case(
        only(check("oldObject.data.k == '1'")),
        [post("expression 'oldObject.data.k == '1'' resulted in error: no such key: data")],
    ),
    "deletes of many": Case(
        says("request.operation + ' ' + oldObject.metadata.name + ' ' + string(has(request.name))", rules=[rule()]),
        [Ask("DELETE", CM, said="DELETE old false")],
        before=EXISTING,
    ),
    "apply": Case(
        says("request.operation + ' ' + object.data.k + ' ' + request.options.kind"),
        [
            Ask(
                "PATCH",
                f"{CM}/new?fieldManager=m",
                config_map("new", {"k": "1"}),
                said="CREATE 1 CreateOptions",
                type="application/apply-patch+yaml",
            ),
            Ask(
                "PATCH",
                f"{CM}/old?fieldManager=m&force=true",
                config_map("old", {"k": "2"}),
                said="UPDATE 2 UpdateOptions",
                type="application/apply-patch+yaml",
            ),
        ],
        before=EXISTING,
    ),
    "a name that is made": Case(
        only(check("!request.name.startsWith('gen-')", message="generated")),
        [post("generated", config_map(generateName="gen-"))],
    ),
    "the namespace": Case(
        says("namespaceObject.metadata.labels['team'] + ' ' + namespaceObject.metadata.name.substring(0, 4)"), [post("a test")]
    ),
    "rights": Case(
        only(
            check(
                "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()",
                message="may not read secrets",
            ),
            check("authorizer.requestResource.check('delete').allowed()"),
        ),
        [Ask("POST", CM, config_map(), said="may not read secrets", user="bob"), FINE],
        before=(
            (
                "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles",
                {
                    "metadata": {"name": "writer"},
                    "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}],
                },
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/rolebindings",
                {
                    "metadata": {"name": "writer"},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
                    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
                },
            ),
        ),
    ),
    "rights of paths and accounts": Case(
        only(
            check("authorizer.path('/healthz').check('get').allowed()"),
            check("!authorizer.serviceAccount('default', 'x').path('/metrics').check('get').allowed()"),
            check("authorizer.path(' ').check('get').errored()"),
        ),
        [post("expression 'authorizer.path(' ').check('get').errored()' resulted in error: path must not be empty")],
    ),
    "too many questions": Case(
        only(check("[1, 2, 3].all(x, authorizer.path('/' + string(x)).check('get').allowed())")),
        [
            post(
                "expression '[1, 2, 3].all(x, authorizer.path('/' + string(x)).check('get').allowed())' resulted in error: "
                "operation cancelled: actual cost limit exceeded"
            )
        ],
    ),
    "too dear altogether": Case(
        only(
            check("variables.dear"),
            variables=[
                # Two questions are what one expression can afford.
                *(
                    {
                        "name": f"v{number}",
                        "expression": "[1, 2].all(x, authorizer.path('/' + string(x)).check('get').allowed())",
                    }
                    for number in range(15)
                ),
                {"name": "dear", "expression": " && ".join(f"variables.v{number}" for number in range(15))},
            ],
        ),
        [post("validation failed due to running out of cost budget, no further validation rules will be run")],
    ),
    "a param by name": Case(
        only(
            check("object.data.size() <= int(params.data.most)", messageExpression="'at most ' + params.data.most"),
            paramKind=PARAM_KIND,
        ),
        [post("at most 3", config_map("b", dict.fromkeys("abcd", "1"))), FINE],
        {"paramRef": {"name": "limit", "parameterNotFoundAction": "Deny"}},
        LIMITS,
    ),
    "a param in a namespace": Case(
        says("params.metadata.name + ' ' + params.kind + ' ' + params.apiVersion", paramKind=PARAM_KIND),
        [post("limit ConfigMap v1")],
        {"paramRef": {"name": "limit", "namespace": "NS", "parameterNotFoundAction": "Deny"}},
        LIMITS,
    ),
    # Of another kind: once its last policy with params of a kind is gone, a real server hears of no new ones.
    "params by labels": Case(
        only(
            check("object.data.size() <= int(params.spec.hard.pods)", messageExpression="'at most ' + params.spec.hard.pods"),
            paramKind={"apiVersion": "v1", "kind": "ResourceQuota"},
        ),
        [post("at most 1", config_map("b", {"a": "1", "b": "2"})), FINE],
        {"paramRef": {"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"}},
        tuple(
            (
                "/api/v1/namespaces/NS/resourcequotas",
                {"metadata": {"name": f"q{most}", "labels": {"limits": "yes"}}, "spec": {"hard": {"pods": most}}},
            )
            for most in "31"
        ),
    ),
    "a param that is missing": Case(
        only(check("true"), paramKind=PARAM_KIND),
        [post("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction")],
        {"paramRef": {"name": "missing", "parameterNotFoundAction": "Deny"}},
    ),
    "a param of a kind that is missing": Case(
        only(check("true"), paramKind={"apiVersion": "example.com/v1", "kind": "Limit"}),
        [post("failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'")],
        {"paramRef": {"name": "missing", "parameterNotFoundAction": "Deny"}},
    ),
    "a cluster's param with a namespace": Case(
        only(check("true"), paramKind={"apiVersion": "v1", "kind": "Node"}),
        [post("failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`")],
        {"paramRef": {"name": "x", "namespace": "y", "parameterNotFoundAction": "Allow"}},
    ),
    "a status": Case(
        says("request.subResource + ' ' + string(object.status.replicas)", rules=[rule("deployments/status", "apps")]),
        [
            Ask(
                "PATCH",
                f"{DEPLOYMENTS}/d/status",
                {"status": {"replicas": 3}},
                said="status 3",
                type="application/merge-patch+json",
            ),
            Ask("PATCH", f"{DEPLOYMENTS}/d", {"spec": {"replicas": 3}}, type="application/merge-patch+json"),
        ],
        before=((DEPLOYMENTS, DEPLOYMENT),),
    ),
    "a scale": Case(
        says(
            "request.kind.kind + ' ' + object.kind + ' ' + string(oldObject.spec.replicas) + ' ' + string(object.spec.replicas)",
            rules=[rule("deployments/scale", "apps")],
        ),
        [
            Ask(
                "PATCH",
                f"{DEPLOYMENTS}/d/scale",
                {"spec": {"replicas": 3}},
                said="Scale Scale 2 3",
                type="application/merge-patch+json",
            )
        ],
        before=((DEPLOYMENTS, DEPLOYMENT),),
    ),
    "a binding": Case(
        says(
            "request.operation + ' ' + request.kind.kind + ' ' + object.target.name + ' ' + object.metadata.name",
            rules=[rule("pods/binding")],
        ),
        [
            Ask(
                "POST",
                f"{PODS}/p/binding",
                {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}},
                said="CREATE Binding n p",
            )
        ],
        before=((PODS, POD),),
    ),
    "an eviction": Case(
        says("request.operation + ' ' + request.kind.group + ' ' + object.metadata.name", rules=[rule("pods/eviction")]),
        [
            Ask(
                "POST",
                f"{PODS}/p/eviction",
                {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "NS"}},
                said="CREATE policy p",
            )
        ],
        before=((PODS, POD),),
    ),
    "a connection": Case(
        says(
            "request.operation + ' ' + request.kind.kind + ' ' + object.kind + ' ' + object.command[0] + ' ' + "
            "string(object.stdout) + ' ' + string(has(object.tty)) + ' ' + request.name + '/' + request.subResource + ' ' + "
            "string(oldObject == null)",
            rules=[rule("pods/exec", operations=["CONNECT"])],
        ),
        [
            Ask(
                "POST",
                f"{PODS}/p/exec?command=sh&stdout=true",
                said="CONNECT PodExecOptions PodExecOptions sh true false p/exec true",
                dry=False,
            )
        ],
        before=((PODS, POD),),
    ),
    "a token": Case(
        says("request.operation + ' ' + object.kind + ' ' + request.name", rules=[rule("serviceaccounts/token")]),
        [
            Ask(
                "POST",
                "/api/v1/namespaces/NS/serviceaccounts/sa/token",
                {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}},
                said="CREATE TokenRequest sa",
            )
        ],
        before=(("/api/v1/namespaces/NS/serviceaccounts", {"metadata": {"name": "sa"}}),),
    ),
    "another view of the same": Case(
        says(
            "object.apiVersion + ' ' + request.resource.group + ' ' + request.requestKind.version + ' ' + "
            "object.regarding.name + ' ' + object.note",
            rules=[rule("events", "events.k8s.io")],
        ),
        [
            Ask(
                "POST",
                "/api/v1/namespaces/NS/events",
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": "e"},
                    "involvedObject": {"kind": "Pod", "name": "p", "namespace": "NS"},
                    "message": "hello",
                },
                said="events.k8s.io/v1 events.k8s.io v1 p hello",
            )
        ],
    ),
    "what upstream's e2e specs say of deployments": Case(
        only(
            check("object.spec.replicas > 2", messageExpression="'wants replicas > 2, got ' + object.spec.replicas"),
            check("variables.odd"),
            check("namespaceObject.metadata.name == object.metadata.namespace"),
            variables=[
                {"name": "replicas", "expression": "object.spec.replicas"},
                {"name": "odd", "expression": "variables.replicas % 2 == 1"},
            ],
            rules=[rule("deployments", "apps")],
        ),
        [
            # The message cannot be made of a number.
            Ask("POST", DEPLOYMENTS, DEPLOYMENT, said="failed expression: object.spec.replicas > 2"),
            Ask(
                "POST",
                DEPLOYMENTS,
                DEPLOYMENT | {"spec": DEPLOYMENT["spec"] | {"replicas": 4}},
                said="failed expression: variables.odd",
            ),
            Ask("POST", DEPLOYMENTS, DEPLOYMENT | {"spec": DEPLOYMENT["spec"] | {"replicas": 5}}),
        ],
    ),
    "some names": Case(
        only(check("false", message="no"), rules=[RULE | {"resourceNames": ["x", "y"]}]),
        [post("no", config_map("y")), FINE],
    ),
    "some operations": Case(
        only(check("false", message="no"), rules=[RULE | {"operations": ["DELETE"]}]),
        [Ask("DELETE", f"{CM}/old", said="no"), FINE],
        before=EXISTING,
    ),
    "some are left out": Case(
        {
            "matchConstraints": {
                "resourceRules": [rule("*")],
                "excludeResourceRules": [rule("secrets")],
            },
            "validations": [check("false", message="no")],
        },
        [post("no"), Ask("POST", "/api/v1/namespaces/NS/secrets", {"metadata": {"name": "s"}})],
    ),
    "some labels": Case(
        {
            "matchConstraints": {"resourceRules": [RULE], "objectSelector": {"matchLabels": {"a": "b"}}},
            "validations": [check("false", message="no")],
        },
        [post("no", config_map(labels={"a": "b"})), FINE],
    ),
    "a warning": Case(
        only(check("false", message="careful")), [post("", warned="careful")], {"validationActions": ["Warn", "Audit"]}
    ),
    "an annotation that cannot be made": Case(
        {
            "matchConstraints": {"resourceRules": [RULE]},
            "auditAnnotations": [{"key": "k", "valueExpression": "string(object.data.k)"}],
        },
        [post("expression 'string(object.data.k)' resulted in error: no such key: k"), post("", config_map("b", {"k": "1"}))],
        {"validationActions": ["Audit"]},
    ),
    "a driver's slices are those of its node": Case(
        DRIVER_POLICY,
        [
            Ask("POST", SLICES, slice_of("node-1"), said="no node association found for user", user=BOB, extra=(("a", "b"),)),
            Ask(
                "POST",
                SLICES,
                slice_of("node-2"),
                said="this user running on node 'node-1' may not modify resourceslices on node 'node-2'",
                user=BOB,
                extra=ON_NODE,
            ),
            Ask("POST", SLICES, slice_of("node-1"), user=BOB, extra=ON_NODE),
            Ask("POST", SLICES, slice_of("node-2")),
        ],
        {"matchResources": {}},
    ),
    "libraries": Case(
        says(
            "string(quantity('1Gi').isGreaterThan(quantity('1M'))) + ' ' + url('https://a.b:1/c').getHost() + ' ' + "
            "string(cidr('10.0.0.0/8').containsIP(ip('10.1.2.3'))) + ' ' + string(semver('1.2.3').minor()) + ' ' + "
            "'abc'.find('b.') + ' ' + string(sets.contains([1, 2], [1])) + ' ' + string([3, 1].isSorted()) + ' ' + "
            "string(format.named('uuid').hasValue()) + ' ' + {'a': 1}.transformList(k, v, k + string(v)).join('') + ' ' + "
            "'%s-%d'.format(['x', 1])"
        ),
        [post("true a.b:1 true 2 bc true false true a1 x-1")],
    ),
}

# A real server does not serve these versions unless told to.
OLDER: dict[str, Case] = {
    "another version of the same": Case(
        says(
            "object.apiVersion + ' ' + request.resource.version + ' ' + request.requestResource.version + ' ' + "
            "object.spec.devices.requests[0].exactly.deviceClassName",
            rules=[rule("resourceclaims", "resource.k8s.io")],
        ),
        [
            Ask(
                "POST",
                "/apis/resource.k8s.io/v1beta1/namespaces/NS/resourceclaims",
                {
                    "apiVersion": "resource.k8s.io/v1beta1",
                    "kind": "ResourceClaim",
                    "metadata": {"name": "c"},
                    "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "c"}]}},
                },
                said="resource.k8s.io/v1 v1 v1beta1 c",
            )
        ],
    ),
    "an older version of the same": Case(
        says(
            "object.apiVersion + ' ' + request.resource.version + ' ' + request.requestKind.version + ' ' + "
            "object.spec.devices.requests[0].deviceClassName",
            rules=[rule("resourceclaims", "resource.k8s.io", "v1beta1")],
        ),
        [
            Ask(
                "POST",
                "/apis/resource.k8s.io/v1/namespaces/NS/resourceclaims",
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaim",
                    "metadata": {"name": "c"},
                    "spec": CLAIM_SPEC,
                },
                said="resource.k8s.io/v1beta1 v1beta1 v1 c",
            )
        ],
    ),
    "an exact version only": Case(
        {
            "matchConstraints": {
                "matchPolicy": "Exact",
                "resourceRules": [rule("resourceclaims", "resource.k8s.io", "v1beta1")],
            },
            "validations": [check("false", message="no")],
        },
        [
            Ask(
                "POST",
                "/apis/resource.k8s.io/v1beta1/namespaces/NS/resourceclaims",
                {
                    "apiVersion": "resource.k8s.io/v1beta1",
                    "kind": "ResourceClaim",
                    "metadata": {"name": "c"},
                    "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "c"}]}},
                },
                said="no",
            ),
            Ask(
                "POST",
                "/apis/resource.k8s.io/v1/namespaces/NS/resourceclaims",
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaim",
                    "metadata": {"name": "c"},
                    "spec": CLAIM_SPEC,
                },
            ),
        ],
    ),
}
