"""Functions of the user's that take Arrow arrays, and give one: of all records of a bundle in
columns, of one record in rows.

They are never called for null: where an argument is null, the value is. They must be elementwise:
the value of a record does not depend on the records beside it. One record of each bundle is
computed again alone, so that a mistake is noticed. A record for which the function raises, or gives
an array that does not fit, has no known value in columns; by rows it is called for each such record
alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millwheel.core.expressions.declaration import KNOWN, VALUE, known_dtype
from millwheel.core.lazy_polars import dtype, pl
from millwheel.errors import RecordError

_TYPES: dict[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bool": pa.bool_(),
}
_OF_VALUES: dict[type, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
}
_KEPT = 4
"""Results of bundles that are remembered: a step first asks for the known ones, and then for their
values; and one expression may have a few calls."""
_FEW = 16
"""Records that go by rows together where one of them fails: a call costs as much as a few."""


class ArrayFunction:
    """A function of arrays under its name. ``returns`` is the kind of its values, ``passes``:
    whether an exception ends the worker."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        returns: str,
        passes: Callable[[BaseException], bool],
    ) -> None:
        self._name = name
        self._function = function
        self._returns = returns
        self._passes = passes
        self._kept: deque[tuple[Sequence[pl.Series], pl.Series]] = deque(maxlen=_KEPT)
        self._complaint = ""

    def of_one(self, *arguments: Any) -> Any:
        """The value for one record; null if an argument is. Raises the errors of the function, and
        RecordError for a result that does not fit."""
        if None in arguments:
            return None
        if self._complaint:
            raise RecordError(self._complaint)
        arrays = [pa.array([each], _OF_VALUES.get(type(each))) for each in arguments]
        return self._called(arrays, 1)[0].as_py()

    def of_columns(self, columns: Sequence[pl.Series]) -> pl.Series:
        """The values for the records for which the first column is true; the other columns are
        their arguments: structs of ``value`` and whether it is ``known``."""
        for arguments, result in self._kept:
            if all(map(_same, arguments, columns)):
                return result
        result = self._structs(columns[0], columns[1:])
        self._kept.append((columns, result))
        return result

    def _structs(self, asked: pl.Series, columns: Sequence[pl.Series]) -> pl.Series:
        mask = asked.to_numpy()
        arrays = [_array(each if mask.all() else each.filter(asked)) for each in columns]
        count = int(np.count_nonzero(mask))
        values, is_known = self._computed(arrays, count)
        frame = pl.DataFrame(
            {
                VALUE: pl.from_arrow(values).cast(dtype(self._returns)),
                KNOWN: is_known,
            }
        )
        if count < len(mask):
            rows = pl.Series(np.cumsum(mask) - 1).zip_with(asked, pl.Series([None], dtype=pl.Int64))
            frame = frame.select(pl.all().gather(rows)).with_columns(pl.col(KNOWN).fill_null(False))
        structs: pl.Series = frame.to_struct().cast(known_dtype(self._returns))
        return structs

    def _computed(self, arrays: Sequence[pa.Array], count: int) -> tuple[pa.Array, np.ndarray]:
        """The values, and whether each is known: around a record that fails, none of a few is."""
        try:
            results = self._called(arrays, count) if count and not self._complaint else None
            if results is not None and count > 1:
                self._check_alone(arrays, results)
        except BaseException as ex:
            if isinstance(ex, KeyboardInterrupt) and self._passes(ex):
                raise
            results = None
            if count > _FEW and not self._complaint:
                return self._halved(arrays, count)
        if results is None:
            return pa.nulls(count, _TYPES[self._returns]), np.zeros(count, np.bool_)
        return results, np.ones(count, np.bool_)

    def _halved(self, arrays: Sequence[pa.Array], count: int) -> tuple[pa.Array, np.ndarray]:
        middle = count // 2
        first = self._computed([each.slice(0, middle) for each in arrays], middle)
        second = self._computed([each.slice(middle) for each in arrays], count - middle)
        return pa.concat_arrays([first[0], second[0]]), np.concatenate([first[1], second[1]])

    def _check_alone(self, arrays: Sequence[pa.Array], results: pa.Array) -> None:
        at = len(results) // 2
        alone = self._called([each.slice(at, 1) for each in arrays], 1)[0].as_py()
        if repr(alone) != repr(results[at].as_py()):
            self._complaint = (
                f"{self._name}() gives a record another value alone ({alone!r:.60}) than among"
                f" others ({results[at].as_py()!r:.60}); each value must follow from the values at"
                " the same position of its arrays"
            )
            raise RecordError(self._complaint)

    def _called(self, arrays: Sequence[pa.Array], count: int) -> pa.Array:
        results = self._function(*arrays)
        if isinstance(results, pa.ChunkedArray):
            results = results.combine_chunks()
        elif isinstance(results, np.ndarray):
            results = pa.array(results)
        if not isinstance(results, pa.Array):
            kind = type(results).__name__
            raise RecordError(f"{self._name}() gave a {kind}; return an array of Arrow or numpy")
        if len(results) != count:
            raise RecordError(
                f"{self._name}() gave {len(results)} values for {count} records; give one for each"
            )
        if not _fits(results.type, self._returns):
            raise RecordError(
                f"{self._name}() gave {results.type}, not {self._returns}, which `returns` says"
            )
        results.validate(full=True)  # bytes that are not a text would end the worker
        return results.cast(_TYPES[self._returns])


def _fits(kind: pa.DataType, returns: str) -> bool:
    if pa.types.is_null(kind):
        return True
    if returns == "str":
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
    if returns == "bool":
        return bool(pa.types.is_boolean(kind))
    whole = pa.types.is_integer(kind)
    return bool(whole or (returns == "float" and pa.types.is_floating(kind)))


def _array(column: pl.Series) -> pa.Array:
    array = column.alias("").to_arrow()  # a name with NUL would be none of Arrow's
    return array.cast(pa.string()) if pa.types.is_large_string(array.type) else array


def _same(one: pl.Series, other: pl.Series) -> bool:
    """Whether two columns without nulls are equal to the bit."""
    if len(one) != len(other) or one.dtype != other.dtype:
        return False
    if one.dtype == pl.Float64:
        return np.array_equal(one.to_numpy().view(np.int64), other.to_numpy().view(np.int64))
    return one.equals(other)
