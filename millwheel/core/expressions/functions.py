"""The functions and operators of expressions. Each is total, or raises an error that an expression turns into a
RecordError."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

MAX_POWER_BITS = 4_096
"""The longest result of ``**`` over whole numbers, in bits."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the language: ``act`` with between ``least`` and ``most`` arguments."""

    act: Callable[..., Any]
    least: int = 1
    most: int = 1

    @property
    def arity(self) -> str:
        """How many arguments, in words."""
        if self.least == self.most:
            return f"{self.least} argument{'s' if self.least > 1 else ''}"
        return f"{self.least} to {self.most} arguments" if self.most < 100 else f"at least {self.least} arguments"


def power(base: Any, exponent: Any) -> Any:
    """``**`` with bounded cost. Raises ValueError for a result of more than :data:`MAX_POWER_BITS`."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and base.bit_length() * abs(exponent) > MAX_POWER_BITS:
        raise ValueError(f"{base} ** {exponent} is too large")
    return base**exponent


def modulo(left: Any, right: Any) -> Any:
    """``%`` of numbers only; on text the operator would be a formatting language of its own."""
    if isinstance(left, (str, bytes)):
        raise TypeError("% is for numbers only")
    return left % right


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"needs text, not {type(value).__name__}")


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as ex:
        raise ValueError(f"the pattern {text!r} is no regular expression: {ex}") from None


FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(abs),
    "round": Function(round, 1, 2),
    "floor": Function(math.floor),
    "ceil": Function(math.ceil),
    "sqrt": Function(math.sqrt),
    "min": Function(min, 1, 100),
    "max": Function(max, 1, 100),
    "len": Function(len),
    "int": Function(int),
    "float": Function(float),
    "str": Function(str),
    "lower": Function(lambda text: _text(text).lower()),
    "upper": Function(lambda text: _text(text).upper()),
    "strip": Function(lambda text: _text(text).strip()),
    "startswith": Function(lambda text, prefix: _text(text).startswith(prefix), 2, 2),
    "endswith": Function(lambda text, suffix: _text(text).endswith(suffix), 2, 2),
    "contains": Function(lambda whole, part: part in whole, 2, 2),
    "matches": Function(lambda text, pattern: _pattern(pattern).search(_text(text)) is not None, 2, 2),
}
