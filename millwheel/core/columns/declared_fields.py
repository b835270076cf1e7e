"""Declared fields: the types that values must have, and the same fields as columns of polars."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from millwheel.core.instants.decimals import (
    DecimalForm,
    decimal_form,
    is_decimal,
    without_decimals,
)
from millwheel.core.instants.time_forms import INSIDE, KIND, TimeForm, form_of, is_time
from millwheel.core.lazy_polars import dtype, pl
from millwheel.core.model.records import Values, taken
from millwheel.errors import RecordError

_ALLOWED: dict[str, set[type]] = {
    "int": {int, type(None)},
    "float": {float, int, type(None)},
    "str": {str, type(None)},
    "bool": {bool, type(None)},
}
_HELD = {Decimal, dict, list}
"""The types of exactly read fractions, and of values that may contain them."""
_INT64 = 2**63  # Fixed: integers from here on are not an int64
_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no"}


class FieldTypes:
    """Checks dict values against declared types. A field that is missing or None fits every
    type. The type of a time is its :attr:`.declared.TimeForm.kind`."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        for name, kind in fields.items():
            if is_decimal(kind):
                decimal_form(kind)  # which refuses too many digits
            elif kind not in _ALLOWED and not is_time(kind):
                words = ", ".join([*_ALLOWED, KIND, "decimal(12, 2)"])
                raise ValueError(f"field {name!r} is declared as {kind!r}; write one of {words}")
        self._fields = dict(fields)
        self.decimals = any(map(is_decimal, fields.values()))
        """Whether some are decimals: then fractions are to come as :class:`~decimal.Decimal`."""

    def __bool__(self) -> bool:
        return bool(self._fields)

    def check(self, values: list[dict[str, Any]]) -> dict[int, str]:
        """{index: error} of the invalid values. Whole numbers in a float field are converted to
        floats, and times to µs, in place: values are checked once."""
        problems: dict[int, str] = {}
        if self.decimals:
            self._to_floats_elsewhere(values, problems)
        for name, kind in self._fields.items():
            if is_whole_inside(kind):
                self._to_inside(name, kind, values, problems)
                continue
            read = values if isinstance(values, Values) else None
            if read is not None and kind == "int" and read.numbers(name) is not None:
                continue
            column = column_of(name, values)
            kinds = (read.kinds(name) if read is not None else None) or set(map(type, column))
            if not kinds <= _ALLOWED[kind] or (
                kind == "int" and int in kinds and _beyond(column, kinds)
            ):
                self._find(name, kind, column, problems)
            if kind == "float" and int in kinds:
                self._to_floats(name, column, values, problems)
                if read is not None:
                    read.changed(name)
        return problems

    def _to_floats_elsewhere(self, values: list[dict[str, Any]], problems: dict[int, str]) -> None:
        """Fractions of other fields become floats, as in records without decimals."""
        own = {name for name, kind in self._fields.items() if is_decimal(kind)}
        for index, value in enumerate(values):
            for name, each in value.items():
                if name in own or type(each) not in _HELD:
                    continue
                try:
                    value[name] = without_decimals(each)
                except RecordError as ex:
                    problems.setdefault(index, f"field {name!r}: {ex}")

    @staticmethod
    def _to_inside(
        name: str, kind: str, values: list[dict[str, Any]], problems: dict[int, str]
    ) -> None:
        form, read = _form_of(kind), values if isinstance(values, Values) else None
        numbers = None if read is None else read.numbers(name)
        if numbers is not None and form.numbers(numbers) is numbers:
            return
        column = column_of(name, values)
        inside = form.column(column)
        if inside is not None:
            column[:] = inside.tolist()
            for value, time_us in zip(values, column, strict=True):
                value[name] = time_us
        else:
            for index, (value, original) in enumerate(zip(values, column, strict=True)):
                try:
                    if original is not None:
                        column[index] = value[name] = form.inside(original)
                except RecordError as ex:
                    problems.setdefault(index, _no_form(name, kind, ex))
        if read is not None:
            read.changed(name)

    @staticmethod
    def _find(name: str, kind: str, column: list[Any], problems: dict[int, str]) -> None:
        for index, value in enumerate(column):
            if type(value) not in _ALLOWED[kind]:
                description = f"{type(value).__name__} {value!r}"[:80]
                problems.setdefault(
                    index, f"field {name!r} is {description}, but is declared as {kind}"
                )
            elif kind == "int" and value is not None and not -_INT64 <= value < _INT64:
                problems.setdefault(
                    index, f"field {name!r} is {str(value)[:80]}, which does not fit into 64 bits"
                )

    @staticmethod
    def _to_floats(
        name: str, column: list[Any], values: list[dict[str, Any]], problems: dict[int, str]
    ) -> None:
        for index, (entry, value) in enumerate(zip(column, values, strict=True)):
            if type(entry) is int:
                try:
                    column[index] = value[name] = float(entry)
                except OverflowError:
                    problems.setdefault(
                        index, f"field {name!r} is a number beyond the range of floats"
                    )


def _no_form(name: str, kind: str, ex: RecordError) -> str:
    return f"field {name!r} is declared as {KIND if is_time(kind) else kind}: {ex}"


def is_whole_inside(kind: str) -> bool:
    """Whether fields of a kind are whole numbers once they are read, in any form they were written
    in: times and decimals."""
    return is_time(kind) or is_decimal(kind)


def _form_of(kind: str) -> TimeForm | DecimalForm:
    return decimal_form(kind) if is_decimal(kind) else form_of(kind)


def column_of(name: str, values: list[dict[str, Any]]) -> list[Any]:
    """One field of all values; None where it is missing."""
    column = values.column(name) if type(values) is Values else taken(values, name)
    return [value.get(name) for value in values] if column is None else column


def _beyond(column: list[Any], kinds: set[type]) -> bool:
    """True when a whole number does not fit into 64 bits."""
    numbers = column if kinds == {int} else [number for number in column if type(number) is int]
    try:
        array("q", numbers)
    except OverflowError:
        return True
    return False


def from_texts(name: str, kind: str, texts: Sequence[str]) -> list[Any]:
    """The texts of a field converted to its declared type. An empty text becomes None unless the
    type is ``str``.

    Raises RecordError, with a sentence about one of them.
    """
    if kind == "str":
        return list(texts)
    if is_whole_inside(kind):
        return _times_of_texts(name, kind, texts)
    convert = _CONVERT[kind]
    try:
        values = (
            list(map(convert, texts))
            if "" not in texts
            else [convert(text) if text else None for text in texts]
        )
    except ValueError:
        if len(texts) > 1:
            raise RecordError(f"some {name!r} is not of the declared type {kind}") from None
        raise RecordError(
            f"field {name!r} is {texts[0][:80]!r}, but is declared as {kind}"
        ) from None
    if kind == "int" and _beyond(values, set(map(type, values))):
        raise RecordError(f"field {name!r} is {texts[0][:80]}, which does not fit into 64 bits")
    return values


def _times_of_texts(name: str, kind: str, texts: Sequence[str]) -> list[Any]:
    form = _form_of(kind)
    if (read := form.column(texts)) is not None:
        times: list[Any] = read.tolist()
        return times
    try:
        # a column of a file without types may hold numbers
        return [form.inside_of_text(text) if text else None for text in texts]
    except RecordError as ex:
        raise RecordError(_no_form(name, kind, ex)) from None


def _boolean(text: str) -> bool:
    lower = text.lower()
    if lower not in _TRUE and lower not in _FALSE:
        raise ValueError(text)
    return lower in _TRUE


_CONVERT: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": _boolean}


_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_ROW_TYPES: dict[str, Any] = {
    "int": _Int64 | None,
    "float": float | None,
    "str": str | None,
    "bool": bool | None,
}
_WRITTEN_TIME: Any = str | _Int64 | float | None


def row_type(
    fields: Mapping[str, str], exact: Collection[str] = (), whole: bool = False
) -> type[msgspec.Struct]:
    """A type into which msgspec decodes only the declared fields; it refuses values of other types.

    Attributes are named ``f0``, ``f1``, …, since a field may have any name. ``exact``: in these
    fields a whole number stays an int, also where floats are expected; see :func:`are_exact`.
    ``whole``: it refuses values with other fields.
    """
    types = [
        float | int | None
        if kind == "float" and name in exact
        else _WRITTEN_TIME
        if is_time(kind)
        else Decimal | None
        if is_decimal(kind)
        else _ROW_TYPES[kind]
        for name, kind in fields.items()
    ]
    members = [(f"f{index}", kind, None) for index, kind in enumerate(types)]
    names = {f"f{index}": name for index, name in enumerate(fields)}
    return msgspec.defstruct("Row", members, rename=names, gc=False, forbid_unknown_fields=whole)


def are_exact(values: Sequence[Any], fields: Mapping[str, str], exact: Collection[str]) -> bool:
    """Whether each float of the exact fields was written as one."""
    floats = (
        index
        for index, (name, kind) in enumerate(fields.items())
        if kind == "float" and name in exact
    )
    return all(set(map(type, _attribute(index, values))) <= {float} for index in floats)


def frame_of(values: Sequence[Any], fields: Mapping[str, str]) -> pl.DataFrame:
    """The declared fields of values, which are dicts that were checked, or of :func:`row_type`.
    Raises RecordError for a value of a time field that is not a time."""
    columns: list[Any]
    if values and type(values[0]) is dict:
        columns = [column_of(name, list(values)) for name in fields]
    else:
        columns = [
            _times(name, kind, _attribute(index, values))
            if is_whole_inside(kind)
            else _attribute(index, values)
            for index, (name, kind) in enumerate(fields.items())
        ]
    kinds = zip(as_read(fields).items(), columns, strict=True)
    return pl.DataFrame([pl.Series(name, column, dtype(kind)) for (name, kind), column in kinds])


def _times(name: str, kind: str, column: Sequence[Any]) -> Any:
    form = _form_of(kind)
    times = form.column(column)
    try:
        return (
            [None if each is None else form.inside(each) for each in column]
            if times is None
            else times
        )
    except RecordError as ex:
        raise RecordError(_no_form(name, kind, ex)) from None


def times_of(kind: str, column: pl.Series) -> pl.Series | None:
    """A column of whole numbers or texts as times; None where each must be looked at."""
    form, times = _form_of(kind), None
    if column.null_count():
        return None
    if column.dtype.is_integer() and column.dtype != pl.UInt64:
        times = form.numbers(column.cast(pl.Int64).to_numpy())
    elif column.dtype == pl.String:
        times = form.column(column.to_list())
    return None if times is None else pl.Series(column.name, times)


def with_times(frame: pl.DataFrame, fields: Mapping[str, str]) -> pl.DataFrame | None:
    """The frame of declared fields, of which times are as they were written; None where each must
    be looked at."""
    for name, kind in fields.items():
        if is_whole_inside(kind):
            times = times_of(kind, frame[name])
            if times is None:
                return None
            frame = frame.with_columns(times)
    return frame


def as_read(fields: Mapping[str, str]) -> dict[str, str]:
    """The kinds of declared fields once they were read: times are whole numbers."""
    return {name: INSIDE if is_whole_inside(kind) else kind for name, kind in fields.items()}


def frames_of(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Several frames as one."""
    return frames[0] if len(frames) == 1 else pl.concat(frames, rechunk=True)


_EXAMPLE_VALUES = 5_000  # distinct numbers of an example that warms the columns


def example_frame(fields: Mapping[str, str], rows: int) -> pl.DataFrame:
    """Made-up records with a few thousand different values of each declared field."""
    numbers = pl.int_range(rows, eager=True) % _EXAMPLE_VALUES
    return pl.DataFrame(
        [numbers.cast(dtype(kind)).alias(name) for name, kind in as_read(fields).items()]
    )


_FIRST: tuple[Callable[[Sequence[Any]], list[Any]], ...] = (
    lambda rows: [row.f0 for row in rows],
    lambda rows: [row.f1 for row in rows],
    lambda rows: [row.f2 for row in rows],
    lambda rows: [row.f3 for row in rows],
    lambda rows: [row.f4 for row in rows],
    lambda rows: [row.f5 for row in rows],
    lambda rows: [row.f6 for row in rows],
    lambda rows: [row.f7 for row in rows],
    lambda rows: [row.f8 for row in rows],
    lambda rows: [row.f9 for row in rows],
)
"""Written-out attribute access takes half the time of ``attrgetter``; it is a tenth of the cost of
a frame."""


def _attribute(index: int, rows: Sequence[Any]) -> list[Any]:
    return _FIRST[index](rows) if index < len(_FIRST) else list(map(attrgetter(f"f{index}"), rows))
