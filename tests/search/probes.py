"""What is asked of slices: windows around the times of the records, on edges and beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
