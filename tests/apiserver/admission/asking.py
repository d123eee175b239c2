"""Puts a case to a server: any function that sends a request and gives the code, the body and the warnings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.apiserver.admission.cases import Ask, Case
from tests.apiserver.admission.changes import Change, Try

Json = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class Said(NamedTuple):
    code: int
    body: Json
    warnings: tuple[str, ...] = ()


# method, path, body, user, extra, content type
Send = Callable[[str, str, Json | None, str, tuple[tuple[str, str], ...], str], Said]


def prepare(send: Send, case: Case | Change, namespace: str) -> None:
    """The policy is named as the namespace, and bound to it."""
    sort = "validating" if isinstance(case, Case) else "mutating"
    for path, body in case.before:
        made = send("POST", _filled(path, namespace), _filled(body, namespace), "", (), "application/json")
        assert made.code == 201, made
    policy = {"metadata": {"name": namespace}, "spec": case.spec}
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": namespace, "matchResources": selector, **case.binding}
    if sort == "validating":
        binding = {"validationActions": ["Deny"], **binding}
    bound = {"metadata": {"name": f"{namespace}-binding"}, "spec": _filled(binding, namespace)}
    for plural, given in ((f"{sort}admissionpolicies", policy), (f"{sort}admissionpolicybindings", bound)):
        made = send("POST", f"{ADMISSION}/{plural}", given, "", (), "application/json")
        assert made.code == 201, made


def remove(send: Send, namespace: str) -> None:
    for sort in ("validating", "mutating"):
        for plural, name in (("policybindings", f"{namespace}-binding"), ("policies", namespace)):
            send("DELETE", f"{ADMISSION}/{sort}admission{plural}/{name}", None, "", (), "application/json")


def ask(send: Send, asked: Ask | Try, namespace: str) -> Said:
    path = _filled(asked.path, namespace)
    if asked.dry:
        path += f"{'&' if '?' in path else '?'}dryRun=All"
    return send(asked.method, path, _filled(asked.body, namespace), asked.user, asked.extra, asked.type)


def holds(asked: Ask, said: Said, namespace: str) -> bool:
    """Whether the policy has had its say: a real server sees policies and params a moment after they were written."""
    if asked.warned:
        return any(asked.warned in warning for warning in said.warnings)
    message: str = said.body.get("message", "")
    return said.code == asked.code and f"ValidatingAdmissionPolicy '{namespace}'" in message and message.endswith(asked.said)


def verify(asked: Ask, said: Said, namespace: str) -> None:
    if not asked.said:
        assert said.code < 300, said
        expected = f"Validation failed for ValidatingAdmissionPolicy '{namespace}' with binding '{namespace}-binding': "
        assert [warning for warning in said.warnings if "Admission" in warning] == (
            [f"{expected}{asked.warned}"] if asked.warned else []
        )
        return
    assert said.code == asked.code, said
    head = f"ValidatingAdmissionPolicy '{namespace}'"
    if not asked.said.startswith("failed to configure policy"):
        head += f" with binding '{namespace}-binding'"
    message = f"{head} denied request: {asked.said}"
    assert said.body["message"].endswith(f" is forbidden: {message}"), said.body["message"]
    assert said.body["details"]["causes"] == [{"message": message}]
    reasons = {403: "Forbidden", 413: "RequestEntityTooLarge", 422: "Invalid"}
    assert said.body["reason"] == reasons[asked.code]


# ---------------------------------------------------------------------------------------------------------------- changes


def changed(asked: Try, said: Said, namespace: str) -> bool:
    """Whether the policy has had its say."""
    try:
        verify_change(asked, said, namespace)
    except AssertionError:
        return False
    return True


def verify_change(asked: Try, said: Said, namespace: str) -> None:
    if not asked.said and not asked.told:
        assert said.code < 300, said
        for place, value in asked.made.items():
            assert _at(said.body, place.split(".")) == _filled(value, namespace), (place, said.body)
        return
    assert (said.code, said.body.get("reason")) == (asked.code, asked.reason), said
    if asked.told:
        assert said.body["message"] == asked.told
        return
    head = f"policy '{namespace}' with binding '{namespace}-binding' denied request: "
    messages = [head + each for each in asked.said]
    assert said.body["message"] == messages[0]
    assert [cause["message"] for cause in said.body["details"]["causes"]] == messages


def _at(value: Any, place: list[str]) -> Any:
    for step in place:
        if isinstance(value, list):
            value = value[int(step)] if int(step) < len(value) else None
        else:
            value = (value or {}).get(step)
    return value


def _filled(value: Any, namespace: str) -> Any:
    if value is None:
        return None
    return json.loads(json.dumps(value).replace('"NS"', f'"{namespace}"').replace("/NS/", f"/{namespace}/"))
