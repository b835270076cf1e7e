"""Operators with bounded results. Each is total, or raises an error that an expression turns into a
RecordError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_POWER_BITS = 4_096
"""The longest result of ``**`` over whole numbers, in bits."""
MAX_PRODUCT_BITS = 16_384
"""The longest result of ``*`` over whole numbers, in bits."""
MAX_TEXT = 100_000
"""The longest text that an operator or a function makes, in characters; a longer argument may
stay."""


def power(base: Any, exponent: Any) -> Any:
    """``**`` with bounded cost. Raises ValueError for a result of more than
    :data:`MAX_POWER_BITS`, and for one that is not a real number."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and base.bit_length() * abs(exponent) > MAX_POWER_BITS:
        raise ValueError("the power is too large")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("the power is not a real number")
    return result


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
