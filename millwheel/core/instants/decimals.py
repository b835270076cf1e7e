"""Fields that are declared as ``decimal(p, s)``: numbers of at most ``p`` digits, ``s`` of them
behind the point. Inside, each is a whole number of units of the last digit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.errors import RecordError

MOST_DIGITS = 18  # Fixed: as many as always fit into 64 bits
_KIND = re.compile(r"decimal\(\s*(\d{1,3})\s*(?:,\s*(\d{1,3})\s*)?\)")
_SHOWN = 80  # characters of a value that are repeated
_ROUNDING = Context(prec=2 * MOST_DIGITS, rounding=ROUND_HALF_EVEN)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
_MOST_TEXT = 4_300  # characters of a text that is cast: as many as int() reads


@dataclass(frozen=True, slots=True)
class DecimalForm:
    """The numbers of a field: at most ``precision`` digits, ``scale`` of them behind the point."""

    precision: int
    scale: int

    @property
    def kind(self) -> str:
        """The form as the type of a field."""
        return f"decimal({self.precision}, {self.scale})"

    def inside(self, value: Any) -> int:
        """A number as whole units. Raises RecordError for a value that is not of this form: floats
        are refused, since they are not exactly the numbers that were written."""
        if isinstance(value, str):
            try:
                return self._units(Decimal(value), value)
            except ArithmeticError:
                raise RecordError(f"{_described(value)}, which is not a number") from None
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise RecordError(f"{_described(value)}, and a decimal is a number or a text")
        return self._units(Decimal(value), value)

    def inside_of_text(self, text: str) -> int:
        """:meth:`inside` of a text in a file without types."""
        return self.inside(text)

    def rounded(self, value: Any) -> int:
        """The nearest number of this form to a number, or to a text of one, as whole units; a half
        goes to the even neighbour. A float counts as its shortest digits. Raises ValueError for a
        value that is not a number, or too large."""
        if isinstance(value, str):
            value = value.strip()
            if len(value) > _MOST_TEXT or not _NUMBER.fullmatch(value):
                raise ValueError("it is not a number")
        number = Decimal(repr(value) if isinstance(value, float) else value)
        if not number.is_finite() or (number and number.adjusted() >= self._whole_digits):
            raise ValueError(f"it does not fit into {self.kind}")
        units = int(
            number.quantize(Decimal(1).scaleb(-self.scale), context=_ROUNDING).scaleb(
                self.scale, context=_ROUNDING
            )
        )
        if abs(units) >= 10**self.precision:
            raise ValueError(f"it does not fit into {self.kind}")
        return units

    @property
    def _whole_digits(self) -> int:
        """The number of digits before the point."""
        return self.precision - self.scale

    def column(self, values: Sequence[Any]) -> npt.NDArray[np.int64] | None:
        """:meth:`inside` of many values, of which none is null; None where each must be looked
        at."""
        try:
            if set(map(type, values)) == {int}:
                return self.numbers(np.array(values, np.int64))
            return np.array([self.inside(each) for each in values], np.int64)
        except (OverflowError, RecordError):
            return None

    def numbers(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """The same of whole numbers."""
        most = 10**self._whole_digits
        if len(numbers) and not -most < int(numbers.min()) <= int(numbers.max()) < most:
            return None
        units: npt.NDArray[np.int64] = numbers * 10**self.scale
        return units

    def _units(self, number: Decimal, value: Any) -> int:
        sign, digits, exponent = number.as_tuple()
        if not isinstance(exponent, int):
            raise RecordError(f"{_described(value)}, which is not a number")
        if not any(digits):
            return 0
        if number.adjusted() >= self._whole_digits:
            raise RecordError(
                f"{_described(value)}, which has more than {self._whole_digits} digits before the"
                " point"
            )
        kept = len(digits) + min(exponent + self.scale, 0)
        if any(digits[max(kept, 0) :]):
            raise RecordError(
                f"{_described(value)}, which has more than {self.scale} digits behind the point"
            )
        whole = int("".join(map(str, digits[:kept])) + "0" * max(exponent + self.scale, 0))
        return -whole if sign else whole


def _described(value: Any) -> str:
    shown = str(value) if isinstance(value, Decimal) else f"{type(value).__name__} {value!r}"
    return f"it is {shown}"[:_SHOWN]


def is_decimal(kind: str) -> bool:
    """Whether a kind of a declared field is that of decimals, of any size."""
    return _KIND.fullmatch(kind) is not None


@lru_cache(maxsize=1_000)  # forms of fields: a pipeline has a few
def decimal_form(kind: str) -> DecimalForm:
    """The form that a kind names. Raises ValueError, with the cure, for one that cannot be."""
    match = _KIND.fullmatch(kind)
    if match is None:
        raise ValueError(f"{kind!r} is not a decimal; write for example decimal(12, 2)")
    precision, scale = int(match[1]), int(match[2] or 0)
    if not 1 <= precision <= MOST_DIGITS:
        raise ValueError(
            f"{kind} has {precision} digits; write 1 to {MOST_DIGITS}, for example"
            f" decimal({MOST_DIGITS}, {min(scale, MOST_DIGITS)})"
        )
    if scale > precision:
        raise ValueError(
            f"{kind} has more digits behind the point than digits; write for example"
            f" decimal({precision}, {min(2, precision)}), the digits and those behind the point"
        )
    return DecimalForm(precision, scale)


def shown(units: int, scale: int) -> Decimal:
    """Whole units as the number that they are, with all its digits behind the point."""
    digits = tuple(map(int, str(abs(units))))
    return Decimal((int(units < 0), digits, -scale))


Scales = Mapping[str, Any]
"""The decimals of a record by their names: the digits behind the point, the scales of a record
within it, or a list of one of these for the entries of a list."""
NO_SCALES: Scales = MappingProxyType({})


def with_decimals(value: Any, scale: Any) -> Any:
    """A record as sinks get it: whole units as numbers, by the scales of its fields."""
    return _shown_all(value, scale)


def _shown_all(value: Any, scale: Any) -> Any:
    if isinstance(scale, int):
        return shown(value, scale) if type(value) is int else value
    if isinstance(scale, list):
        return [_shown_all(each, scale[0]) for each in value] if _is_list(value) else value
    if not isinstance(value, Mapping):
        return value
    made = {name: _shown_all(value[name], each) for name, each in scale.items() if name in value}
    return {**value, **made}


def beyond(value: Any, scale: Any) -> str:
    """Why a record cannot be shown, "" if it can: a sum beyond 64 bits of units is a float, and no
    longer exact."""
    return _beyond("", value, scale)


def _beyond(name: str, value: Any, scale: Any) -> str:
    if isinstance(scale, Mapping):
        held = value if isinstance(value, Mapping) else {}
        complaints = (_beyond(of, held.get(of), each) for of, each in scale.items())
        return next(filter(None, complaints), "")
    if isinstance(scale, list):
        entries = value if _is_list(value) else ()
        return next(filter(None, (_beyond(name, each, scale[0]) for each in entries)), "")
    if type(value) is not float:
        return ""
    return (
        f"{name or 'it'} is {value!r} units, beyond the 64 bits in which it is exact: a unit is the"
        f" last of {scale} digits behind the point. Declare fewer, or write float(…)"
    )


def in_units_again(value: Any, scale: Any) -> Any:
    """The inverse of :func:`with_decimals`, also for numbers that have become texts on their way;
    whole units stay."""
    if isinstance(scale, int):
        number = Decimal(value) if isinstance(value, str | Decimal) else None
        return value if number is None else int(number.scaleb(scale, context=_ROUNDING))
    if isinstance(scale, list):
        return [in_units_again(each, scale[0]) for each in value] if _is_list(value) else value
    if not isinstance(value, Mapping):
        return value
    made = {name: in_units_again(value[name], of) for name, of in scale.items() if name in value}
    return {**value, **made}


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def without_decimals(value: Any) -> Any:
    """A JSON value whose fractions a decoder read as :class:`~decimal.Decimal`, as if it had read
    floats. Raises RecordError for a number beyond their range."""
    kind = type(value)
    if kind is Decimal:
        number = float(value)
        if number in (float("inf"), float("-inf")):
            raise RecordError("a number is too large")
        return number
    if kind is dict:
        return {name: without_decimals(each) for name, each in value.items()}
    return [without_decimals(each) for each in value] if kind is list else value
