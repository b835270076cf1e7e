"""Durations on the command line."""

from __future__ import annotations

from millwheel.core.model.times import duration_us
from millwheel.errors import SetupError


def seconds(text: str, option: str) -> float:
    """A duration such as 2s or 1m, in seconds. Raises SetupError naming the option."""
    try:
        found = duration_us(text) / 1e6
    except ValueError as ex:
        raise SetupError(f"{option} {text}: {ex}") from None
    if found <= 0:
        raise SetupError(f"{option} {text}: write a duration above zero, for example {option} 1m")
    return found
