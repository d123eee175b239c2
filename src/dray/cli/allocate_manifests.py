"""``dray allocate -f``: plain manifests in, a readable answer out. For a driver's CI: would these slices serve these claims?

Always true: objects are read as an API server reads them, so a field that it would not know is named and nothing is answered.
Claims get devices one after another, in the order of the files, as they would on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.markup import escape

from dray.api import kinds
from dray.api.class_names import ClassNames
from dray.api.core import Pod
from dray.api.kinds import Kind
from dray.api.meta import DecodeError, decode
from dray.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate
from dray.cli.allocate import Invalid, Line, Refusals, Session
from dray.cli.output import emit, table
from dray.cli.trouble import Trouble
from dray.cluster.world import World
from dray.explain.advice import change_in_words
from dray.explain.snapshot import SnapshotError, documents, files_of, kind_of
from dray.scheduling.shape.extended import requests_for, wanted_names

Json = dict[str, Any]
_READ: Final = (
    kinds.DEVICE_CLASSES,
    kinds.RESOURCE_SLICES,
    kinds.DEVICE_TAINT_RULES,
    kinds.RESOURCE_CLAIMS,
    kinds.RESOURCE_CLAIM_TEMPLATES,
    kinds.NODES,
    kinds.PODS,
)
# A node for slices that name none.
_ANY: Final = "any-node"
# Of what would help, so much is told.
_MOST_CHANGES: Final = 3


class Manifests:
    """The objects of the files by kind, checked; ``left_out`` are those of other kinds, ``special`` the claims that are made for
    extended resources."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.of: dict[Kind, list[Json]] = {kind: [] for kind in _READ}
        self.left_out: dict[str, int] = {}
        self.special: set[str] = set()
        problems: list[str] = []
        try:
            for file in files_of(paths):
                for body in documents(file):
                    problems += self._add(file, body)
        except SnapshotError as error:
            raise Trouble(str(error)) from error
        if problems:
            raise Trouble("\n  ".join(["the manifests have mistakes:", *problems]))

    def _add(self, file: Path, body: Json) -> list[str]:
        kind = kind_of(body, file)
        if kind not in self.of:
            self.left_out[str(body["kind"])] = self.left_out.get(str(body["kind"]), 0) + 1
            return []
        from dray.apiserver.schema import load

        metadata = body.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name") or not isinstance(body.get("spec", {}), dict):
            return [f"{file}: {kind.kind} needs metadata.name and a spec"]
        made, problems = load().normalise(kind, {**body, "apiVersion": kind.api_version})
        if kind.namespaced:
            made["metadata"].setdefault("namespace", "default")
        self.of[kind].append(made)
        return [f"{file}: {kind.kind} {metadata['name']}: {problem.message}" for problem in problems]

    def nodes(self) -> list[Json]:
        """Those of the files, or else those that the slices name."""
        named = (slice.get("spec", {}).get("nodeName") for slice in self.of[kinds.RESOURCE_SLICES])
        names = list(dict.fromkeys(name for name in named if name)) or [_ANY]
        return self.of[kinds.NODES] or [{"metadata": {"name": name}} for name in names]

    def questions(self) -> list[tuple[str, list[Json]]]:
        """The claims of each pod together; then claims and templates that no pod names, each by itself."""
        claims = {_key(claim): claim for claim in self.of[kinds.RESOURCE_CLAIMS] if not _allocated(claim)}
        templates = {_key(template): template for template in self.of[kinds.RESOURCE_CLAIM_TEMPLATES]}
        named: set[str] = set()
        asked: list[tuple[str, list[Json]]] = []
        for pod in self.of[kinds.PODS]:
            found = [self._of_pod(pod, entry, named) for entry in pod.get("spec", {}).get("resourceClaims", [])]
            found += self._extended(pod)
            if wanted := [claim for claim in found if not _allocated(claim)]:
                asked.append((f"pod {_key(pod)}", wanted))
        asked += [(f"claim {key}", [claim]) for key, claim in claims.items() if key not in named]
        asked += [(f"template {k}", [_from(t, t["metadata"]["name"])]) for k, t in templates.items() if k not in named]
        return asked

    def _of_pod(self, pod: Json, entry: Json, named: set[str]) -> Json:
        """One claim of a pod, as it is in the files or as it would be generated."""
        made = "resourceClaimTemplateName" in entry
        name = entry["resourceClaimTemplateName"] if made else entry.get("resourceClaimName")
        key = f"{pod['metadata']['namespace']}/{name}"
        kind = kinds.RESOURCE_CLAIM_TEMPLATES if made else kinds.RESOURCE_CLAIMS
        found = next((body for body in self.of[kind] if _key(body) == key), None)
        if found is None:
            raise Trouble(f"pod {_key(pod)} names {kind.kind} {key}, which is in none of the files; add it with -f")
        named.add(key)
        return _from(found, f"{pod['metadata']['name']}-{entry['name']}") if made else found

    def _extended(self, pod: Json) -> Iterator[Json]:
        """The claim that a scheduler makes for the pod's extended resources; what a node of the files offers itself, a device
        plugin gives."""
        classes = ClassNames()
        for body in self.of[kinds.DEVICE_CLASSES]:
            classes.put(decode(DeviceClass, body))
        spec = decode(Pod, pod).spec
        offered = {name for node in self.of[kinds.NODES] for name in (node.get("status") or {}).get("allocatable") or {}}
        if names := wanted_names(spec, classes) - offered:
            requests = msgspec.to_builtins(requests_for(spec, names, classes).requests)
            made = {"metadata": pod["metadata"], "spec": {"spec": {"devices": {"requests": requests}}}}
            claim = _from(made, f"{pod['metadata']['name']}-extended-resources")
            self.special.add(_key(claim))
            yield claim


def _allocated(claim: Json) -> bool:
    return bool((claim.get("status") or {}).get("allocation"))


def _key(body: Json) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata'].get('name', '')}"


def _from(template: Json, name: str) -> Json:
    metadata = {"name": name, "namespace": template["metadata"]["namespace"]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": template["spec"]["spec"]}


class Answers:
    """The questions of the files put to an engine that knows the rest of them."""

    def __init__(self, manifests: Manifests) -> None:
        of = manifests.of
        raws = {kind: [_raw(body) for body in bodies] for kind, bodies in of.items()}
        used = [_raw(claim) for claim in of[kinds.RESOURCE_CLAIMS] if _allocated(claim)]
        line = Line(
            classes=raws[kinds.DEVICE_CLASSES],
            slices=raws[kinds.RESOURCE_SLICES],
            taint_rules=raws[kinds.DEVICE_TAINT_RULES],
            allocated_claims=used,
            validate=True,
        )
        self._session = Session(line)
        for template in raws[kinds.RESOURCE_CLAIM_TEMPLATES]:
            self._session.object(kinds.RESOURCE_CLAIM_TEMPLATES, ResourceClaimTemplate, template)
        self._check()
        self._nodes = [self._session.node(_raw(node)) for node in manifests.nodes()]
        self._special = manifests.special
        questions = [(what, self._session.claims([_raw(c) for c in bodies])) for what, bodies in manifests.questions()]
        self._check()
        if not questions:
            raise Trouble("the files have no ResourceClaim, ResourceClaimTemplate or Pod to allocate devices for")
        refusals = Refusals(self._session, self._nodes)
        self.placed = 0
        self.all = [self._answer(number, what, claims, refusals) for number, (what, claims) in enumerate(questions)]

    def _check(self) -> None:
        if self._session.problems:
            raise Trouble("\n  ".join(["an API server would refuse the manifests:", *self._session.problems]))

    def _answer(self, number: int, what: str, claims: list[ResourceClaim], refusals: Refusals) -> Json:
        engine = self._session.engine
        node, verdict = engine.first_fit(self._nodes, claims)
        if not verdict.ok:
            changes = [*dict.fromkeys(self._changes(claims))][:_MOST_CHANGES] if not verdict.error else []
            return {"for": what, **refusals.told(claims, verdict, self.placed), "wouldHelp": changes}
        for claim, result in zip(claims, verdict.results):
            claim.metadata.uid = f"{claim.metadata.uid}/{number}"
            engine.hold(claim, result)
        self.placed += 1
        named = [{"claim": claim.key, "allocation": result} for claim, result in zip(claims, verdict.results)]
        return {"for": what, "ok": True, "node": node, "claims": named}

    def _changes(self, claims: list[ResourceClaim]) -> Iterator[str]:
        world = World((kinds.RESOURCE_CLAIMS,))
        for node in self._nodes:
            for change in self._session.engine.explain(node, claims).changes:
                # Nobody can write a toleration into a claim that the scheduler makes.
                if change.kind != "tolerate" or change.claim not in self._special:
                    yield change_in_words(world, change)


def _raw(body: Json) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(body))


def answer_manifests(paths: Sequence[Path], output: str) -> int:
    """Print the answers; 0 when all got devices, 1 when not."""
    try:
        manifests = Manifests(paths)
        answers = Answers(manifests).all
    except (Invalid, DecodeError) as error:
        raise Trouble(str(error)) from error
    ok = all(answer["ok"] for answer in answers)
    emit({"ok": ok, "answers": answers, "leftOut": manifests.left_out}, output, lambda out: _print(out, answers, manifests))
    return 0 if ok else 1


def _print(out: Console, answers: list[Json], manifests: Manifests) -> None:
    rows = [row for answer in answers if answer["ok"] for row in _rows(answer)]
    if rows:
        out.print(table(("FOR", "NODE", "CLAIM", "REQUEST", "DEVICE"), rows))
    for answer in answers:
        if not answer["ok"]:
            said = answer.get("summary") or "; ".join(r["message"] for r in answer["reasons"]) or answer["error"]
            out.print(f"\n{escape(answer['for'])} gets nothing: {escape(said)}")
            for change in answer["wouldHelp"]:
                out.print(f"  would help: {escape(change)}")
    if manifests.left_out:
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(manifests.left_out.items()))
        out.print(f"\nNot looked at: {escape(told)}.")


def _rows(answer: Json) -> Iterator[tuple[str, ...]]:
    for claim in answer["claims"]:
        for result in claim["allocation"].devices.results:
            device = f"{result.driver}/{result.pool}/{result.device}"
            yield answer["for"], answer["node"], claim["claim"], result.request, device
