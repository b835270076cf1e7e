"""What is asked of slices, around the times of the records, and what the other system of a case
answers to lookups: always the same for a key, so that results depend on the input alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        return NoAnswer(f"{key} is not a key")
    return {"value": key * 10}


class ConstantLookup(Lookup):
    """Asks :func:`answer_of`."""

    where = "the lookup of the search"
    by = ("u",)

    def look_up(self, keys: Sequence[LookupKey]) -> list[Any]:
        return [answer_of(key) for (key,) in keys]


SECOND = 1_000_000
START = 1_000 * SECOND
"""The event time at which input begins."""

_WINDOWS = (7, 20, 60, 600)
_UNTIL = (START + 20 * SECOND, START + 33 * SECOND, START + 60 * SECOND + 1, START + 300 * SECOND)
REFUSED = "refused"
Ask = Callable[[int, int, str], tuple[Mapping[str, Any], int, int] | None]
"""(length, end, mode) -> (values, start and end of the span); None when it is refused. Times are
µs."""


def answers(ask: Ask) -> dict[str, Any]:
    """The answers for one key, by the window in words."""
    found: dict[str, Any] = {}
    for length in _WINDOWS:
        for until in _UNTIL:
            for mode in ("covering", "inside"):
                got = ask(length * SECOND, until, mode)
                found[f"{length}s until {until} {mode}"] = (
                    REFUSED if got is None else [dict(got[0]), got[1], got[2]]
                )
    return found
