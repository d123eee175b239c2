"""What can go wrong with an expression, and where.

``CompileError``: whoever wrote the expression must correct it. ``EvaluationError``: the expression is fine, but not for this
device. ``CostLimitExceeded``: the expression did more work than Kubernetes allows; no ``||`` can absorb it. All carry the
expression and the position in it (offset, line and column, counted in characters; line and column from 1).
"""

from __future__ import annotations

HINT = "consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"


class CelError(Exception):
    """The root of the errors of this package."""

    def __init__(self, message: str, position: int = 0, expression: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.expression = expression

    @property
    def line(self) -> int:
        return self.expression.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int:
        return self.position - (self.expression.rfind("\n", 0, self.position) + 1) + 1

    def pointer(self) -> str:
        """The line of the expression that is meant, with a mark below the place."""
        lines = self.expression.split("\n")
        text = lines[min(self.line, len(lines)) - 1]
        start = max(0, self.column - 60)
        return f" | {text[start : start + 120]}\n | {'.' * (self.column - 1 - start)}^"

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.message}"


class CompileError(CelError):
    """The expression is not valid. Whoever wrote it must correct it."""

    def report(self) -> str:
        """As Kubernetes tells it: the message, and the line with a mark."""
        return f"ERROR: <input>:{self.line}:{self.column}: {self.message}\n{self.pointer()}"


class EvaluationError(CelError):
    """The expression cannot be evaluated for this device."""

    def __str__(self) -> str:
        hint = f". {HINT}" if self.message.startswith("no such key:") else ""
        return f"{self.line}:{self.column}: {self.message}{hint}"


class CostLimitExceeded(EvaluationError):
    """The evaluation was stopped because it cost too much."""


class Failure(Exception):
    """An error value inside an evaluation: ``&&``, ``||`` and the quantifiers may absorb it."""

    def __init__(self, message: str, position: int = -1) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


class Overrun(Exception):
    """The cost limit was reached inside an evaluation. Not a Failure: nothing absorbs it."""
