"""What went wrong, in words, and the patience before saying that something takes long. Loads nothing that draws."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from dray.cluster.port import Forbidden, Refused

PATIENCE_SECONDS: Final = 2.0
MISUNDERSTOOD, TOO_BUSY, FAILED = 400, 429, 500


class Trouble(click.ClickException):
    """The question could not be answered; exit code 2, because 1 is an answer."""

    exit_code = 2


def told(error: Exception) -> str:
    """What went wrong, and who must act where the words of the server or the system do not say it."""
    if isinstance(error, Forbidden) and error.reason == "Unauthorized":
        return f"the API server rejected the credentials in the kubeconfig ({error.code} {error.reason}); renew them"
    if isinstance(error, Refused) and (error.code == TOO_BUSY or error.code >= FAILED):
        return f"the API server {'is too busy' if error.code == TOO_BUSY else 'failed'} ({error}); try again"
    if isinstance(error, Refused) and error.code == MISUNDERSTOOD and "HTTP request to an HTTPS server" in error.message:
        return "the kubeconfig uses http://, but the API server expects https://; correct the server URL"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{error.strerror}; stop the process that listens there, or choose another port"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


@contextmanager
def patience(message: str) -> Iterator[None]:
    """Something that may take long: on a terminal it says so after two seconds."""
    timer = threading.Timer(PATIENCE_SECONDS, click.echo, (message,), {"err": True})
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
