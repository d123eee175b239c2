"""``dray allocate -f``: plain manifests in, a readable answer out. For a driver's CI: would these slices serve these claims?

Always true: objects are read as an API server reads them, so a field that it would not know is named and nothing is answered.
Claims get devices one after another, in the order of the files, as they would on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import Console
from rich.markup import escape

from dray.api import kinds
from dray.api.class_names import ClassNames
from dray.api.core import Pod
from dray.api.kinds import Kind
from dray.api.meta import DecodeError, decode
from dray.api.requests import amounts
from dray.api.resource import DeviceClass, DeviceKey, ResourceClaim, ResourceClaimTemplate
from dray.cli.allocate import Invalid, Line, Refusals, Session
from dray.cli.output import emit, table
from dray.cli.trouble import Trouble
from dray.cluster.world import World
from dray.devices import Verdict
from dray.explain.advice import change_in_words
from dray.explain.snapshot import SnapshotError, documents, files_of, kind_of
from dray.scheduling.shape.extended import not_offered, requests_for, wanted_names

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
# Of what would help, so much is told, and of nodes with device plugins so many are named.
_MOST_CHANGES: Final = 3
_MOST_NODES: Final = 3


class Question(NamedTuple):
    """What wants devices, and where: on which nodes it needs which claims. The claims for extended resources differ from node to
    node; on ``plugins`` it needs none, because device plugins have all that it wants."""

    what: str
    ways: list[tuple[list[str], list[Json]]]
    plugins: list[str] = []


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
            raise Trouble("\n  ".join(["invalid manifests:", *problems]))
        self._left: dict[frozenset[str], dict[frozenset[str], list[str]]] = {}  # by what pods want
        self._classes = ClassNames()
        for body in self.of[kinds.DEVICE_CLASSES]:
            self._classes.put(decode(DeviceClass, body))

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

    def questions(self) -> list[Question]:
        """The claims of each pod together; then claims and templates that no pod names, each by itself."""
        claims = {_key(claim): claim for claim in self.of[kinds.RESOURCE_CLAIMS] if not _allocated(claim)}
        templates = {_key(template): template for template in self.of[kinds.RESOURCE_CLAIM_TEMPLATES]}
        named: set[str] = set()
        asked = [self._about(pod, named) for pod in self.of[kinds.PODS]]
        every = [node["metadata"]["name"] for node in self.nodes()]
        asked += [Question(f"claim {key}", [(every, [claim])]) for key, claim in claims.items() if key not in named]
        asked += [
            Question(f"template {key}", [(every, [_from(each, each["metadata"]["name"])])])
            for key, each in templates.items()
            if key not in named
        ]
        return [question for question in asked if question.ways]

    def _about(self, pod: Json, named: set[str]) -> Question:
        """Where devices serve the most of its extended resources is tried first."""
        entries = [self._of_pod(pod, entry, named) for entry in pod.get("spec", {}).get("resourceClaims", [])]
        own = [claim for claim in entries if not _allocated(claim)]
        groups = sorted(self._left_to_devices(pod).items(), key=lambda group: -len(group[0]))
        ways = [(nodes, [*own, self._special(pod, names)] if names else own) for names, nodes in groups]
        plugins = [node for nodes, claims in ways if not claims for node in nodes]
        return Question(f"pod {_key(pod)}", [way for way in ways if way[1]], plugins)

    def _of_pod(self, pod: Json, entry: Json, named: set[str]) -> Json:
        """One claim of a pod, as it is in the files or as it would be generated."""
        made = "resourceClaimTemplateName" in entry
        name = entry["resourceClaimTemplateName"] if made else entry.get("resourceClaimName")
        key = f"{pod['metadata']['namespace']}/{name}"
        kind = kinds.RESOURCE_CLAIM_TEMPLATES if made else kinds.RESOURCE_CLAIMS
        found = next((body for body in self.of[kind] if _key(body) == key), None)
        if found is None:
            raise Trouble(f"pod {_key(pod)} refers to {kind.kind} {key}, which is not in the files; add it with -f")
        named.add(key)
        return _from(found, f"{pod['metadata']['name']}-{entry['name']}") if made else found

    def _left_to_devices(self, pod: Json) -> dict[frozenset[str], list[str]]:
        """The nodes by which of the pod's extended resources they leave to devices: those that they do not offer themselves."""
        wanted = wanted_names(decode(Pod, pod).spec, self._classes)
        if wanted not in self._left:
            found = self._left[wanted] = {}
            for node in self.nodes():
                offered = amounts((node.get("status") or {}).get("allocatable") or {})
                found.setdefault(not_offered(wanted, offered), []).append(node["metadata"]["name"])
        return self._left[wanted]

    def _special(self, pod: Json, names: frozenset[str]) -> Json:
        """The claim that a scheduler makes for the pod's extended resources."""
        requests = msgspec.to_builtins(requests_for(decode(Pod, pod).spec, names, self._classes).requests)
        made = {"metadata": pod["metadata"], "spec": {"spec": {"devices": {"requests": requests}}}}
        claim = _from(made, f"{pod['metadata']['name']}-extended-resources")
        self.special.add(_key(claim))
        return claim


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
        for node in manifests.nodes():
            self._session.node(_raw(node))
        self._special = manifests.special
        questions = [
            (each, [(nodes, self._session.claims([_raw(claim) for claim in claims])) for nodes, claims in each.ways])
            for each in manifests.questions()
        ]
        self._check()
        if not questions:
            raise Trouble("the files contain no ResourceClaim, ResourceClaimTemplate or Pod to allocate devices for")
        self._refusals: dict[tuple[str, ...], Refusals] = {}
        self.placed = 0
        # Pods that get no device, and the nodes whose device plugins may have what they want.
        self.plugins: dict[str, list[str]] = {}
        found = (self._answer(number, asked, ways) for number, (asked, ways) in enumerate(questions))
        self.all = [answer for answer in found if answer is not None]

    def _check(self) -> None:
        if self._session.problems:
            raise Trouble("\n  ".join(["an API server would reject the manifests:", *self._session.problems]))

    def _answer(self, number: int, asked: Question, ways: list[tuple[list[str], list[ResourceClaim]]]) -> Json | None:
        engine = self._session.engine
        for nodes, claims in ways:
            node, verdict = engine.first_fit(nodes, claims)
            if verdict.ok:
                return self._given(number, asked.what, node, claims, verdict)
        if asked.plugins:
            self.plugins[asked.what] = asked.plugins
            return None
        nodes, claims = ways[0]
        _, verdict = engine.first_fit(nodes, claims)
        refusals = self._refusals.setdefault(tuple(nodes), Refusals(self._session, nodes))
        changes = [*dict.fromkeys(self._changes(nodes, claims))][:_MOST_CHANGES] if not verdict.error else []
        return {"for": asked.what, **refusals.told(claims, verdict, self.placed), "wouldHelp": changes}

    def _given(self, number: int, what: str, node: str, claims: list[ResourceClaim], verdict: Verdict) -> Json:
        for claim, result in zip(claims, verdict.results):
            claim.metadata.uid = f"{claim.metadata.uid}/{number}"
            self._session.engine.hold(claim, result)
        self.placed += 1
        named = [{"claim": claim.key, "allocation": result} for claim, result in zip(claims, verdict.results)]
        return {"for": what, "ok": True, "node": node, "claims": named}

    def _changes(self, nodes: list[str], claims: list[ResourceClaim]) -> Iterator[str]:
        world = World((kinds.RESOURCE_CLAIMS,))
        for node in nodes:
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
        answered = Answers(manifests)
    except (Invalid, DecodeError) as error:
        raise Trouble(str(error)) from error
    ok = all(answer["ok"] for answer in answered.all)
    told = {"ok": ok, "answers": answered.all, "leftToPlugins": answered.plugins, "leftOut": manifests.left_out}
    emit(told, output, lambda out: _print(out, answered, manifests))
    return 0 if ok else 1


def _print(out: Console, answered: Answers, manifests: Manifests) -> None:
    rows = [row for answer in answered.all if answer["ok"] for row in _rows(answer)]
    if rows:
        out.print(table(("FOR", "NODE", "CLAIM", "REQUEST", "DEVICE"), rows))
    for answer in answered.all:
        if not answer["ok"]:
            said = answer.get("summary") or "; ".join(r["message"] for r in answer["reasons"]) or answer["error"]
            out.print(f"\n{escape(answer['for'])} gets no devices: {escape(said)}")
            for change in answer["wouldHelp"]:
                out.print(f"  would help: {escape(change)}")
    for what, nodes in answered.plugins.items():
        named = ", ".join(nodes[:_MOST_NODES]) + (" …" if len(nodes) > _MOST_NODES else "")
        out.print(
            f"\n{escape(what)} gets no device here: the device plugin of {escape(named)}, which is not simulated, allocates it."
        )
    if manifests.left_out:
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(manifests.left_out.items()))
        out.print(f"\nIgnored: {escape(told)}.")


def _rows(answer: Json) -> Iterator[tuple[str, ...]]:
    for claim in answer["claims"]:
        for result in claim["allocation"].devices.results:
            yield answer["for"], answer["node"], claim["claim"], result.request, str(DeviceKey.of(result))
