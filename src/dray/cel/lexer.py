"""Text to tokens.

One regular expression finds the next token; string literals are decoded here, numbers in the parser (their sign is part of them).
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from dray.cel.errors import CompileError

END: Final = "end of expression"
IDENT: Final = "identifier"
INT: Final = "int"
UINT: Final = "uint"
FLOAT: Final = "double"
STRING: Final = "string"
BYTES: Final = "bytes"
KEYWORDS: Final = frozenset({"in", "true", "false", "null"})


class Token(NamedTuple):
    """``kind`` is one of the names above, or the text of an operator or keyword."""

    kind: str
    value: Any
    position: int


_TOKEN: Final = re.compile(
    r"""
    (?P<space>(?:[ \t\r\n\f]+|//[^\n]*)+)
  | (?P<string>(?P<prefix>[bBrR]{0,2})(?P<quote>\"\"\"|'''|"|'))
  | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
  | (?P<int>0x[0-9a-fA-F]+|[0-9]+)
  | (?P<ident>[_a-zA-Z][_a-zA-Z0-9]*)
  | (?P<operator>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE,
)
_PREFIXES: Final = frozenset({"", "b", "r", "br", "rb"})
_SIMPLE: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip
_ESCAPE: Final = re.compile(r"\\(?:([0-3][0-7]{2})|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\?\"'`]))")


def _closing(quote: str, raw: bool) -> re.Pattern[str]:
    """The rest of a literal up to and with its closing quote; only triple quotes go over lines."""
    plain = "." if raw else r"[^\\]"
    if len(quote) == 1:
        plain = r"[^\n\r]" if raw else r"[^\\\n\r]"
    return re.compile(f"(?:{plain})*?{quote}" if raw else rf"(?:\\.|{plain})*?{quote}", re.DOTALL)


_CLOSING: Final = {(quote, raw): _closing(quote, raw) for quote in ("'", '"', "'''", '"""') for raw in (False, True)}


def tokens(text: str) -> list[Token]:
    """All tokens of the text, with one that marks the end."""
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise CompileError(f"Syntax error: token recognition error at: {text[position]!r}", position, text)
        kind = match.lastgroup
        if kind == "string" or match["quote"] is not None:
            token, position = _string(text, match)
            found.append(token)
            continue
        if kind != "space":
            found.append(_token(kind or "", match[0], position))
        position = match.end()
    found.append(Token(END, None, len(text)))
    return found


def _token(kind: str, text: str, position: int) -> Token:
    if kind == "ident":
        return Token(text if text in KEYWORDS else IDENT, text, position)
    if kind == "operator":
        return Token(text, text, position)
    return Token({"float": FLOAT, "uint": UINT, "int": INT}[kind], text, position)


def _string(text: str, opening: re.Match[str]) -> tuple[Token, int]:
    start, prefix, quote = opening.start(), opening["prefix"].lower(), opening["quote"]
    closing = _CLOSING[quote, "r" in prefix].match(text, opening.end()) if prefix in _PREFIXES else None
    if closing is None:
        raise CompileError(f"Syntax error: token recognition error at: {text[start : start + 20]!r}", start, text)
    body = closing[0][: -len(quote)]
    if "b" in prefix:
        value: Any = body.encode() if "r" in prefix else _decode_bytes(body, start, text)
        return Token(BYTES, value, start), closing.end()
    return Token(STRING, body if "r" in prefix else _decode(body, start, text), start), closing.end()


def _decode(body: str, position: int, text: str) -> str:
    if "\\" not in body:
        return body
    out: list[str] = []
    at = 0
    while at < len(body):
        following = body.find("\\", at)
        if following < 0:
            out.append(body[at:])
            break
        out.append(body[at:following])
        match = _ESCAPE.match(body, following)
        if match is None:
            raise CompileError(f"Syntax error: invalid escape sequence {body[following : following + 2]!r}", position, text)
        out.append(_character(match, position, text))
        at = match.end()
    return "".join(out)


def _character(match: re.Match[str], position: int, text: str) -> str:
    octal, hexadecimal, short, long, simple = match.groups()
    if simple:
        return _SIMPLE[simple]
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise CompileError(f"Syntax error: invalid unicode code point {match[0]!r}", position, text)
    return chr(code)


def _decode_bytes(body: str, position: int, text: str) -> bytes:
    out = bytearray()
    at = 0
    while at < len(body):
        if body[at] != "\\":
            out += body[at].encode()
            at += 1
            continue
        match = _ESCAPE.match(body, at)
        if match is None or match[3] or match[4]:
            raise CompileError(f"Syntax error: invalid escape sequence {body[at : at + 2]!r} in bytes", position, text)
        if match[5]:
            out += _SIMPLE[match[5]].encode()
        else:
            out.append(int(match[1], 8) if match[1] else int(match[2], 16))
        at = match.end()
    return bytes(out)
