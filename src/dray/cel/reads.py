"""Which parts of a device an expression can read.

Paths are ``("driver",)``, ``("allowMultipleAllocations",)``, ``("attributes", domain, id)``, ``("attributes", domain)`` for a
whole domain (or whether it exists), ``("attributes",)`` for everything; the same for capacity. Never too few: what cannot be
followed counts as reading everything.
"""

from __future__ import annotations

from dray.cel.checker import children
from dray.cel.tree import Call, Comprehension, Ident, Literal, Node, Select

Path = tuple[str, ...]


def paths_read(node: Node) -> frozenset[Path] | None:
    """All paths that may be read, or None if that is not known."""
    reader = _Reader()
    reader.visit(node, {"device": ()})
    return None if reader.everything else frozenset(reader.found)


class _Reader:
    def __init__(self) -> None:
        self.found: set[Path] = set()
        self.everything = False
        self.seen: set[int] = set()

    def add(self, path: Path) -> None:
        if not path:
            self.everything = True
        else:
            self.found.add(path[:3] if path[0] in ("attributes", "capacity") else path[:1])

    def visit(self, node: Node, scope: dict[str, Path | None]) -> None:
        path = path_of(node, scope)
        if path is not None:
            self.add(path)
            return
        if id(node) in self.seen:
            return
        self.seen.add(id(node))
        if isinstance(node, Comprehension):
            self.comprehension(node, scope)
        elif isinstance(node, Call) and node.function == "@in" and self.membership(node, scope):
            return
        else:
            for child in children(node):
                self.visit(child, scope)

    def membership(self, node: Call, scope: dict[str, Path | None]) -> bool:
        key, container = node.args
        path = path_of(container, scope)
        if path is None or len(path) > 2 or not (isinstance(key, Literal) and isinstance(key.value, str)):
            return False
        self.add((*path, key.value))
        return True

    def comprehension(self, node: Comprehension, scope: dict[str, Path | None]) -> None:
        if node.macro == "bind":
            path = path_of(node.init, scope)
            if path is None:
                self.visit(node.init, scope)
            self.visit(node.result, {**scope, node.accumulator: path})
            return
        self.visit(node.range, scope)
        inner: dict[str, Path | None] = {**scope, node.variable: None, node.accumulator: None}
        if node.variable2:
            inner[node.variable2] = None
        self.visit(node.step, inner)
        self.visit(node.result, inner)


def path_of(node: Node, scope: dict[str, Path | None]) -> Path | None:
    """The path that the node stands for, if it is nothing but steps into the device."""
    steps: list[str] = []
    while True:
        if isinstance(node, Ident):
            start = () if node.name == ".device" else scope.get(node.name)
            return None if start is None else (*start, *reversed(steps))
        if isinstance(node, Select):
            steps.append(node.field)
            node = node.operand
        elif isinstance(node, Call) and node.function in ("_[_]", "_[?_]", "_?._"):
            key = node.args[1]
            if not (isinstance(key, Literal) and isinstance(key.value, str)):
                return None
            steps.append(key.value)
            node = node.args[0]
        else:
            return None
