"""What a patch may not do, with the HTTP code and reason that the client gets."""

from __future__ import annotations


class PatchError(ValueError):
    """The patch cannot be applied. Whoever sent it must act."""

    def __init__(self, code: int, reason: str, message: str, causes: list[dict[str, str]] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.causes = causes or []


class Untrue(PatchError):
    """An operation of a JSON patch tested what is not so."""


def unreadable(message: str) -> PatchError:
    """The patch is not one."""
    return PatchError(400, "BadRequest", f"error decoding patch: {message}")


def refused(message: str) -> PatchError:
    """The patch is one, but does not fit the object."""
    return PatchError(422, "Invalid", message)
