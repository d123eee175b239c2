"""Log lines for people and machines: one line per record, as logfmt or JSON, with the fields given as ``extra``."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import msgspec

Format = Literal["logfmt", "json"]
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(format: Format = "logfmt", level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send every record of the process to ``stream`` (standard error) in one form."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else Logfmt())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Time, level, where and what, then the extra fields in the order in which they were given."""
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    found = {"ts": moment, "level": record.levelname.lower(), "from": record.name, "msg": record.getMessage()}
    found |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
    if record.exc_info:
        found["exception"] = logging.Formatter().formatException(record.exc_info)
    return found


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode(fields(record), enc_hook=str).decode()


class Logfmt(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_quoted(value)}" for key, value in fields(record).items())


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    if text and not any(char in text for char in ' "=\n\t'):
        return text
    return msgspec.json.encode(text).decode()
