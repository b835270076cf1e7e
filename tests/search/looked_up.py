"""What the other system of a case answers to lookups: always the same for a key, so that results
depend on the input alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.connect.lookups.base import Lookup, LookupKey, NoAnswer


def answer_of(key: Any) -> Any:
    """What is known of a key: of some nothing, and some are refused. Of a text it is
    that text: keys may be expressions."""
    if isinstance(key, str):
        return {"value": key}
    if key % 4 == 0:
        return None
    if key % 7 == 3:
        return NoAnswer(f"{key} is no key")
    return {"value": key * 10}


class ConstantLookup(Lookup):
    """Asks :func:`answer_of`."""

    where = "the lookup of the search"
    by = ("u",)

    def look_up(self, keys: Sequence[LookupKey]) -> list[Any]:
        return [answer_of(key) for (key,) in keys]
