"""The groups of a small bundle, in rows.

Below some hundred records, the calls of the library of columns cost more than a loop over the
records: a millisecond a bundle, however small it is. So the groups of a small bundle stay in rows,
and segments of them are merged in rows until they are many. They hold only values that columns can
hold, so any of them can become a frame when one is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import fits_key
from millwheel.core.columns.groups import GroupsPlan
from millwheel.core.columns.groups_frame import END, KEY, START
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.windows.calls import Group
from millwheel.core.windows.lateness import still_open
from millwheel.core.windows.windows import Window
from millwheel.errors import CorruptionError, InvariantError

FEW_RECORDS = 200
"""Bundles of fewer records are grouped in rows. At 200 to 400 records both forms cost the same."""
MOST_FEW = 400
"""Segments that have more groups together become columns."""
_INT64, _INT128, _UINT32 = 2**63, 2**127, 2**32  # Fixed: beyond the numbers of a column

_Int64s = npt.NDArray[np.int64]
At = tuple[Key, Window]


class FewRow(NamedTuple):
    """A group: the number of its records, their accumulator in the row form, and in the form of the
    columns."""

    records: int
    acc: Any
    parts: list[Any]


class RowForm:
    """How groups of a plan are held in rows."""

    def __init__(self, plan: GroupsPlan, aggregation: Aggregation) -> None:
        self.plan = plan
        self._aggregation = aggregation
        names = [name for each in plan.aggregates for name in each.dtypes]
        self._checks = [_check_of(plan.schema[name]) for name in names]
        fields = plan.key_dtype.fields if len(plan.key_names) > 1 else ()
        self._key_kinds = [field.dtype for field in fields] or [plan.key_dtype]
        self.types = [[name, _word_of(kind)] for name, kind in plan.schema.items()]

    def groups(self, groups: Iterable[tuple[Key, Group]]) -> FewGroups | None:
        """These groups, each of another key or window; None where only a frame can tell whether
        columns can hold them. Raises Inexact where they cannot."""
        rows: dict[At, FewRow] = {}
        for key, group in groups:
            row = self._row(group.count, group.acc)
            if row is None or not self._fits(key):
                return None
            rows[key, group.window] = row
        return FewGroups(self, rows)

    def together(self, rows: Sequence[FewRow]) -> FewRow:
        """Several groups of a key and a window as one. Raises Inexact."""
        if len(rows) == 1:
            return rows[0]
        # a new one: merging changes its first argument, which is held elsewhere
        acc = self._aggregation.create()
        for row in rows:
            acc = self._aggregation.merge(acc, row.acc)
        whole = self._row(sum(row.records for row in rows), acc)
        if whole is None:
            raise Inexact
        return whole

    def _row(self, count: int, acc: Any) -> FewRow | None:
        pairs = zip(self.plan.aggregates, acc, strict=True)
        parts = [part for aggregate, own in pairs for part in aggregate.from_acc(own)]
        fit = all(
            part is None or check(part) for check, part in zip(self._checks, parts, strict=True)
        )
        return FewRow(count, acc, parts) if fit else None

    def _fits(self, key: Key) -> bool:
        if len(self._key_kinds) == 1:
            return fits_key(key, self._key_kinds[0])
        parts = key if type(key) is tuple else (key,)
        return len(parts) == len(self._key_kinds) and all(map(fits_key, parts, self._key_kinds))


class FewGroups:
    """Groups in rows, by key and window. They do not change."""

    __slots__ = ("_frame", "_of_keys", "form", "rows")

    def __init__(self, form: RowForm, rows: dict[At, FewRow]) -> None:
        self.form = form
        self.rows = rows
        self._frame: pl.DataFrame | None = None
        self._of_keys: dict[Key, list[Window]] | None = None

    @property
    def height(self) -> int:
        """How many groups there are."""
        return len(self.rows)

    def listed(self) -> list[list[Any]]:
        """The rows of :meth:`frame`; keys of several fields as tuples."""
        return [
            [key, window.start, window.end, row.records, *row.parts]
            for (key, window), row in self.rows.items()
        ]

    def frame(self) -> pl.DataFrame:
        """The same as a groups frame, which is made once."""
        if self._frame is None:
            plan = self.form.plan
            self._frame = frame_of_rows(self.listed(), plan.schema)
        return self._frame

    def where(self, predicate: Callable[[Window], bool]) -> FewGroups:
        """The groups of the windows for which the predicate holds."""
        rows = {at: row for at, row in self.rows.items() if predicate(at[1])}
        return self if len(rows) == len(self.rows) else FewGroups(self.form, rows)

    def in_windows(self, window_of: Callable[[Window], Window]) -> FewGroups:
        """The same groups in other windows, a different one for each different window."""
        return FewGroups(
            self.form, {(key, window_of(window)): row for (key, window), row in self.rows.items()}
        )

    def windows_of(self, key: Key) -> list[Window]:
        """The windows of a key."""
        if self._of_keys is None:
            self._of_keys = {}
            for each, window in self.rows:
                self._of_keys.setdefault(each, []).append(window)
        return self._of_keys.get(key, [])

    def size(self) -> int:
        """About how many bytes they take."""
        lists = (
            len(part) for row in self.rows.values() for part in row.parts if type(part) is list
        )
        return 8 * (4 * len(self.rows) + sum(lists))


Groups: TypeAlias = "pl.DataFrame | FewGroups"  # a text: pl is loaded when it is used


def frame_of(groups: Groups) -> pl.DataFrame:
    """Groups as a frame."""
    return groups.frame() if isinstance(groups, FewGroups) else groups


def starts_of(groups: Groups) -> _Int64s:
    """The starts of windows."""
    if isinstance(groups, FewGroups):
        return np.array([window.start for _, window in groups.rows], np.int64)
    return groups[START].to_numpy()


def ends_of(groups: Groups) -> _Int64s:
    """The ends of windows."""
    if isinstance(groups, FewGroups):
        return np.array([window.end for _, window in groups.rows], np.int64)
    return groups[END].to_numpy()


def ending_after(groups: Groups, time_us: int) -> Groups:
    """The groups of windows that are open at this time."""
    if isinstance(groups, FewGroups):
        return groups.where(lambda window: still_open(window.end, time_us))
    return groups.filter(still_open(pl.col(END), time_us))


def ending_by(groups: Groups, time_us: int) -> Groups:
    """The groups of windows that are complete at this time."""
    if isinstance(groups, FewGroups):
        return groups.where(lambda window: not still_open(window.end, time_us))
    return groups.filter(~still_open(pl.col(END), time_us))


def merged_rows(several: Sequence[Groups]) -> FewGroups | None:
    """Several groups as one, with one row for each key and window; None unless all are in rows, and
    few together. Raises Inexact."""
    few = [groups for groups in several if isinstance(groups, FewGroups)]
    if not few or len(few) < len(several) or sum(groups.height for groups in few) > MOST_FEW:
        return None
    rows_at: dict[At, list[FewRow]] = {}
    for groups in few:
        for at, row in groups.rows.items():
            rows_at.setdefault(at, []).append(row)
    form = few[0].form
    # Accumulators of two plans have different parts at the same index.
    if any(groups.form.types != form.types for groups in few):
        raise InvariantError(f"groups of the columns {form.types} are merged with others")
    return FewGroups(form, {at: form.together(rows) for at, rows in rows_at.items()})


def frame_of_rows(rows: Sequence[Sequence[Any]], schema: dict[str, Any]) -> pl.DataFrame:
    """A groups frame of its rows, in which keys of several fields are tuples. Raises Inexact."""
    columns: dict[str, Sequence[Any]] = (
        dict(zip(schema, zip(*rows, strict=True), strict=True))
        if rows
        else dict.fromkeys(schema, ())
    )
    kind = schema[KEY]
    if isinstance(kind, pl.Struct):
        names = [field.name for field in kind.fields]
        columns[KEY] = tuple(dict(zip(names, key, strict=True)) for key in columns[KEY])
    try:
        return pl.DataFrame(
            [pl.Series(name, columns[name], kind, strict=True) for name, kind in schema.items()]
        )
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        raise Inexact from None


# --- the store ------------------------------------------------------------------------------------


def stored_rows(few: FewGroups) -> tuple[Any, ...]:
    """Groups as plain data: the types of their columns, and the rows."""
    schema = few.form.plan.schema
    wide = [index for index, kind in enumerate(schema.values()) if kind == pl.Int128]
    rows = few.listed()
    for row in rows:
        for index in wide:
            if not -_INT64 <= row[index] < _INT64:  # what msgpack cannot carry
                row[index] = str(row[index])
    return few.form.types, rows


def restored_rows(stored: Sequence[Any]) -> pl.DataFrame:
    """The inverse of :func:`stored_rows`, as a frame. CorruptionError when it is not."""
    try:
        types, rows = stored
        schema = {name: _type_of(word) for name, word in types}
        wide = [index for index, kind in enumerate(schema.values()) if kind == pl.Int128]
        for row in rows:
            for index in wide:
                row[index] = int(row[index])
        return frame_of_rows(rows, schema)
    except (Inexact, KeyError, IndexError, TypeError, ValueError) as ex:
        raise CorruptionError(
            f"a segment of windows has rows that do not fit its types: {ex}"
        ) from ex


_WORDS = ("Int64", "Int128", "Float64", "String", "Boolean", "UInt32")


def _word_of(kind: Any) -> Any:
    """The name of a type of columns, as plain data: ``["List", of]``, ``["Struct", [name, of],
    ...]``."""
    if isinstance(kind, pl.List):
        return ["List", _word_of(kind.inner)]
    if isinstance(kind, pl.Struct):
        return ["Struct", *([field.name, _word_of(field.dtype)] for field in kind.fields)]
    return next(word for word in _WORDS if kind == getattr(pl, word))


def _type_of(word: Any) -> Any:
    """The inverse of :func:`_word_of`."""
    match word:
        case ["List", of]:
            return pl.List(_type_of(of))
        case ["Struct", *fields]:
            return pl.Struct({name: _type_of(of) for name, of in fields})
    if word not in _WORDS:
        raise KeyError(word)
    return getattr(pl, word)


def _check_of(kind: Any) -> Callable[[Any], bool]:
    """Whether a column of this type holds a value as it is."""
    if isinstance(kind, pl.List):
        check = _check_of(kind.inner)
        return lambda value: type(value) is list and all(map(check, value))
    for whole, low, high in (
        (pl.Int64, -_INT64, _INT64),
        (pl.Int128, -_INT128, _INT128),
        (pl.UInt32, 0, _UINT32),
    ):
        if kind == whole:
            return lambda value, low=low, high=high: type(value) is int and low <= value < high  # type: ignore[misc]
    plain = {pl.Float64: float, pl.String: str, pl.Boolean: bool}
    of = next((each for name, each in plain.items() if kind == name), None)
    return lambda value: type(value) is of
