"""Values as people may see them: shortened, and without what is or sounds like a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from millwheel.secret_values import HIDDEN, masked

_CHARS, _ITEMS, _DEPTH = 200, 20, 6  # of a value that are shown
_EXACT = 2**53  # beyond, a browser rounds whole numbers
_SECRET = re.compile(r"pass(word|wd|phrase)|secret|token|authori[sz]ation|api[-_]?key|credential|cookie", re.IGNORECASE)


def redacted(value: Any, depth: int = 0) -> Any:
    """A plain value (maps, lists, text, numbers) for a page: long parts are cut, fields whose names sound like a secret
    and secrets that this process knows are ``***``. Whole numbers that a browser would round become text."""
    if isinstance(value, str):
        text = masked(value)
        return text if len(text) <= _CHARS else f"{text[:_CHARS]}… ({len(text):,} characters)"
    if isinstance(value, Mapping):
        return "{…}" if depth == _DEPTH else _fields(value, depth)
    if isinstance(value, list | tuple):
        if depth == _DEPTH:
            return "[…]"
        items = [redacted(item, depth + 1) for item in value[:_ITEMS]]
        return items if len(value) <= _ITEMS else [*items, f"… {len(value) - _ITEMS:,} more"]
    exact = not isinstance(value, int) or abs(value) <= _EXACT
    return value if exact else str(value)


def _fields(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    shown = [(str(name), of) for name, of in list(value.items())[:_ITEMS]]
    fields = {name: HIDDEN if _SECRET.search(name) else redacted(of, depth + 1) for name, of in shown}
    return fields if len(value) <= _ITEMS else {**fields, "…": f"{len(value) - _ITEMS:,} more"}
