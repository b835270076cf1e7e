"""Values as people may see them: shortened, without secrets and values that may be secret."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from millwheel.adapters.secret_values import HIDDEN, masked, sounds_secret

_CHARS, _ITEMS, _DEPTH = 200, 20, 6  # of a value that are shown
# characters of a text that are looked through; the rest is not shown
_LOOKED_AT = 1 << 16
_EXACT = 2**53  # beyond, a browser rounds whole numbers
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_NAMED = re.compile(r"""([A-Za-z][\w.-]{0,60})\\?["']?\s{0,3}(?:=>|[:=])\s{0,3}""")
_VALUE = re.compile(
    r""""(?:[^"\\]|\\.)*"?|\\"(?:[^"\\]|\\[^"])*\\?"?|"""
    r"""'(?:[^'\\]|\\.)*'?|(?:Bearer |Basic )?[^\s,;&"'}\])]+""",
    re.IGNORECASE,
)
_SHOWN_TO = re.compile(r"\b(Bearer|Basic) +[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_IN_URL = re.compile(r"(://[^/\s:@]*:)[^@\s/]+@")
_decode = msgspec.json.Decoder().decode


def redacted(value: Any, depth: int = 0) -> Any:
    """A plain value (maps, lists, text, bytes, numbers) for a page: long parts are cut, fields
    whose names sound like a secret and secrets that this process has seen are ``***``, also within
    JSON that is a text, bytes or base64. Whole numbers that a browser would round become text."""
    if isinstance(value, bytes):
        return _of_bytes(value, depth)
    if isinstance(value, str):
        return _of_text(value, depth)
    if isinstance(value, Mapping):
        return "{…}" if depth == _DEPTH else _fields(value, depth)
    if isinstance(value, list | tuple):
        if depth == _DEPTH:
            return "[…]"
        items = [redacted(item, depth + 1) for item in value[:_ITEMS]]
        return items if len(value) <= _ITEMS else [*items, f"… {len(value) - _ITEMS:,} more"]
    exact = not isinstance(value, int) or abs(value) <= _EXACT
    return value if exact else str(value)


def redacted_text(text: str) -> str:
    """A text of several lines, such as a traceback: secrets, and values behind names that sound
    like one, are ``***``."""
    text = _IN_URL.sub(rf"\1{HIDDEN}@", masked(text))
    return _SHOWN_TO.sub(rf"\1 {HIDDEN}", "".join(_without_values(text)))


def _without_values(text: str) -> Iterator[str]:
    at = 0
    for match in _NAMED.finditer(text):
        if (
            match.start() >= at
            and sounds_secret(match[1])
            and (value := _VALUE.match(text, match.end()))
        ):
            yield text[at : match.end()]
            yield HIDDEN
            at = value.end()
    yield text[at:]


def _of_bytes(value: bytes, depth: int) -> Any:
    try:
        return _of_text(value.decode(), depth)
    except UnicodeDecodeError:
        return f"{len(value):,} bytes"


def _of_text(text: str, depth: int) -> Any:
    if len(text) <= _LOOKED_AT:
        inner = _json_in(text)
        if inner is None and _BASE64.fullmatch(text):
            inner = _json_in(_from_base64(text))
        if inner is not None:
            return redacted(inner, depth)
    excerpt = redacted_text(text[:_LOOKED_AT])
    return excerpt if len(excerpt) <= _CHARS else f"{excerpt[:_CHARS]}… ({len(text):,} characters)"


def _json_in(text: str | bytes) -> Any:
    """The map or list that a text encodes; None for any other text."""
    if text.lstrip()[:1] not in ("{", "[", b"{", b"["):
        return None
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(
            text + "=" * (-len(text) % 4),
            b"-_" if "-" in text or "_" in text else None,
            validate=True,
        )
    except (NotBase64, ValueError):
        return b""


def _fields(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    items = [(str(name), of) for name, of in list(value.items())[:_ITEMS]]
    fields = {
        name: HIDDEN if sounds_secret(name) else redacted(of, depth + 1) for name, of in items
    }
    # Headers and settings come as pairs, too: {name: Authorization, value: …}.
    named = next(
        (of for name, of in items if name.lower() in ("name", "key") and isinstance(of, str)), ""
    )
    if sounds_secret(named):
        fields |= {name: HIDDEN for name, _ in items if name.lower() == "value"}
    return fields if len(value) <= _ITEMS else {**fields, "…": f"{len(value) - _ITEMS:,} more"}
