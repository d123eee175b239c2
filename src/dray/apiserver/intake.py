"""Bodies on their way in: bounded, decoded, and refused with words that help.

JSON, YAML and the protobuf of typed Go clients are read; anything else is refused with 415.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from dray.apiserver.errors import ApiError, bad_request
from dray.apiserver.operations import WriteOptions
from dray.apiserver.schema import DecodeError, decode_json, load
from dray.apiserver.schema.decode import MAX_DEPTH

MAX_BODY: Final = 3 * 1024 * 1024
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_JSON: Final = ("", "application/json", "text/json")
_YAML: Final = ("application/yaml", "text/yaml", "application/x-yaml")

_fast = msgspec.json.Decoder().decode


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def unsupported(accepted: str = "application/json, application/yaml") -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return ApiError(415, "UnsupportedMediaType", message)


def read_body(body: bytes, content_type: str, options: WriteOptions | None = None) -> Any:
    """The decoded body. With ``options``, repeated fields are errors or warnings as the client asked."""
    media = media_type(content_type)
    if media in _YAML:
        return _yaml(body, options)
    if media == PROTOBUF:
        from dray.apiserver.protobuf import decode

        return decode(body, load())
    if media not in _JSON:
        raise unsupported()
    return read_json(body, options)


def read_json(body: bytes, options: WriteOptions | None) -> Any:
    if not body.strip():
        raise bad_request("the request has no body")
    asked = options is not None and options.validation != "Ignore"
    if not asked and body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        # What the fast reader does not take may be fine for the other; if not, that one's words are better.
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _fast(body)
    try:
        value, repeated = decode_json(body)
    except DecodeError as error:
        raise bad_request(f"the object provided is unrecognized (must be of type JSON): {error}") from error
    if asked and options is not None:
        options.repeated += [f'duplicate field "{path}"' for path in repeated[:100]]
    return value


def _yaml(body: bytes, options: WriteOptions | None) -> Any:
    """JSON is YAML; only what is not JSON needs the slow reader."""
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            _fast(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return read_json(body, options)
    from dray.apiserver.yaml_bodies import read_yaml

    value, repeated = read_yaml(body)
    if repeated and options is not None and options.validation == "Strict":
        lines = "\n  ".join(repeated[:100])
        raise bad_request(f"error decoding YAML: strict decoding error: yaml: unmarshal errors:\n  {lines}")
    if repeated and options is not None and options.validation == "Warn":
        options.warnings += repeated[:100]
    return value
