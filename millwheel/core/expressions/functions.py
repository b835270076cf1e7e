"""The functions and operators of expressions. Each is total, or raises an error that an expression
turns into a RecordError. What each costs is bounded by the size of its arguments, except where
:attr:`Function.bounded` says otherwise: clients of queries send expressions, too."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

MAX_POWER_BITS = 4_096
"""The longest result of ``**`` over whole numbers, in bits."""
MAX_PRODUCT_BITS = 16_384
"""The longest result of ``*`` over whole numbers, in bits."""
MAX_TEXT = 100_000
"""The longest text that ``*`` and ``str`` make, in characters."""
MAX_DIGITS = 400
"""The most digits that ``round`` keeps or drops: more than a float has."""
MAX_WHOLE_DIGITS = 4_300
"""The longest text that ``int`` reads, as in Python."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the language: ``act`` with between ``least`` and ``most`` arguments.
    ``bounded``: its cost is at most in proportion to the size of its arguments, so that clients may
    call it."""

    act: Callable[..., Any]
    least: int = 1
    most: int = 1
    bounded: bool = True

    @property
    def arity(self) -> str:
        """How many arguments, in words."""
        if self.least == self.most:
            return f"{self.least} argument{'s' if self.least > 1 else ''}"
        return (
            f"{self.least} to {self.most} arguments"
            if self.most < 100
            else f"at least {self.least} arguments"
        )


def power(base: Any, exponent: Any) -> Any:
    """``**`` with bounded cost. Raises ValueError for a result of more than
    :data:`MAX_POWER_BITS`."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and base.bit_length() * abs(exponent) > MAX_POWER_BITS:
        raise ValueError("the power is too large")
    return base**exponent


def product(left: Any, right: Any) -> Any:
    """``*`` of numbers, and of text that is repeated. Raises ValueError for a result that is too
    large."""
    if type(left) is float or type(right) is float:
        return left * right
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > MAX_PRODUCT_BITS:
            raise ValueError("the product is too large")
        return left * right
    if isinstance(right, (str, bytes)):
        left, right = right, left
    if isinstance(left, (str, bytes)) and isinstance(right, int):
        if len(left) * right > MAX_TEXT:
            raise ValueError("the repeated text is too long")
        return left * right
    if isinstance(left, (list, tuple, Mapping)) or isinstance(right, (list, tuple, Mapping)):
        raise TypeError("* is for numbers, and repeats text")
    return left * right


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


def _rounded(value: Any, digits: Any = None) -> Any:
    """``round``: for many digits of a whole number Python computes a power of ten that nothing
    bounds."""
    if isinstance(digits, int) and abs(digits) > MAX_DIGITS:
        raise ValueError(f"round() takes up to {MAX_DIGITS} digits")
    return round(value, digits)


def _whole(value: Any) -> int:
    if isinstance(value, (str, bytes)) and len(value) > MAX_WHOLE_DIGITS:
        raise ValueError(f"int() reads up to {MAX_WHOLE_DIGITS} digits")
    return int(value)


def _shown(value: Any) -> str:
    """``str``: a list within a list within a list would be twice as long with each ``str``, by its
    quotes."""
    if not isinstance(value, str) and _size(value, MAX_TEXT) > MAX_TEXT:
        raise ValueError(f"str() makes texts of up to about {MAX_TEXT:,} characters")
    return str(value)


def _size(value: Any, most: int) -> int:
    """About the characters of ``repr(value)``; counted no further than ``most``."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, int):
        return value.bit_length() // 3
    size = 1
    if isinstance(value, Mapping):
        value = (part for pair in value.items() for part in pair)
    elif not isinstance(value, (list, tuple, set, frozenset)):
        return size
    for part in value:
        size += 1 + _size(part, most - size)
        if size > most:
            break
    return size


FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(abs),
    "round": Function(_rounded, 1, 2),
    "floor": Function(math.floor),
    "ceil": Function(math.ceil),
    "sqrt": Function(math.sqrt),
    "min": Function(min, 1, 100),
    "max": Function(max, 1, 100),
    "len": Function(len),
    "int": Function(_whole),
    "float": Function(float),
    "str": Function(_shown),
    "lower": Function(lambda text: _text(text).lower()),
    "upper": Function(lambda text: _text(text).upper()),
    "strip": Function(lambda text: _text(text).strip()),
    "startswith": Function(lambda text, prefix: _text(text).startswith(prefix), 2, 2),
    "endswith": Function(lambda text, suffix: _text(text).endswith(suffix), 2, 2),
    "contains": Function(lambda whole, part: part in whole, 2, 2),
    # Python's engine may take exponential time. One in linear time has other classes of characters
    # and no references, so the same text would mean two things; patterns are for pipelines and
    # named queries instead.
    "matches": Function(
        lambda text, pattern: _pattern(pattern).search(_text(text)) is not None, 2, 2, bounded=False
    ),
}
