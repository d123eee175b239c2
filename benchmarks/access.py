"""What it costs to find out who asks and whether they may: the part of each request that roles and tokens add."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from benchmarks.table import Table
from dray.apiserver.api import Request
from dray.apiserver.authentication.users import ADMIN, AUTHENTICATED, User
from dray.apiserver.server import Core

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SCHEDULER = User("system:kube-scheduler", (AUTHENTICATED,))


def access(quick: bool) -> Table:
    times = 2_000 if quick else 200_000
    core = Core()
    core.furnish()
    core.furnish_access()
    table = Table(f"Who may do what: {times} times each", ("what", "a request"))
    for what, ask in _questions(core):
        began = time.process_time()
        for _ in range(times):
            ask()
        table.add(what, f"{(time.process_time() - began) / times * 1e6:.2f} us")
    return table


def _questions(core: Core) -> list[tuple[str, Callable[[], Any]]]:
    return [
        ("may the owner, who may do everything", _admits(core, ADMIN, "GET", "/api/v1/namespaces/default/pods/p")),
        ("may kube-scheduler bind a pod", _admits(core, SCHEDULER, "POST", "/api/v1/namespaces/default/pods/p/binding")),
        ("may one of 1000 rules on pods", _admits(core, _many(core), "GET", "/api/v1/namespaces/default/pods/name-999")),
        ("whose token of a service account", partial(core.authenticator.user, _token(core))),
    ]


def _admits(core: Core, user: User, method: str, path: str) -> Callable[[], Any]:
    request, parts = Request(method, path, user=user), path.strip("/").split("/")
    return lambda: core.api._admitted(request, parts)


def _many(core: Core) -> User:
    """A user with a thousand rules, each for one other name."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": [f"name-{n}"]} for n in range(1000)]
    group = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    binding = {"roleRef": {"kind": "Role", "name": "many"}, "subjects": [{"kind": "User", "name": "many"}]}
    for plural, more in (("roles", {"rules": rules}), ("rolebindings", binding)):
        _post(core, f"{group}/{plural}", {"metadata": {"name": "many"}, **more})
    return User("many", (AUTHENTICATED,))


def _token(core: Core) -> str:
    _post(core, ACCOUNTS, {"metadata": {"name": "robot"}})
    return f"Bearer {_post(core, f'{ACCOUNTS}/robot/token', {'spec': {}})['status']['token']}"


def _post(core: Core, path: str, body: dict[str, Any]) -> Any:
    answer = core.api.handle(Request("POST", path, body=msgspec.json.encode(body), user=ADMIN))
    assert getattr(answer, "code", 0) == 201, answer
    return msgspec.json.decode(answer.body)  # type: ignore[union-attr]


TABLES = {"access": access}
