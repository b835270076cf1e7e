"""The values that columns may hold before anything is computed over them. Columns from a source, or
of a computation's results, are checked here before the next operation takes them; the other records
are processed one by one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from millwheel.core.lazy_polars import kind_of, pl


def is_clean(frame: pl.DataFrame, kinds: Mapping[str, str], nulls: bool = False) -> bool:
    """True when the frame has all fields of these kinds ("": any), and they hold neither nulls
    (they may with ``nulls``) nor NaN nor infinities."""
    # Asked column by column: one query over all of them takes ten times as long.
    return all(
        name in frame.columns and _is_clean(frame[name], kind, nulls)
        for name, kind in kinds.items()
    )


def _is_clean(column: pl.Series, kind: str, nulls: bool) -> bool:
    if kind and kind_of(column.dtype) != kind:
        return False
    if column.null_count():
        if not nulls:
            return False
        column = column.drop_nulls()
    return kind != "float" or bool(np.isfinite(column.to_numpy()).all())


def clean_rows(
    frame: pl.DataFrame, kinds: Mapping[str, str], nulls: bool = False
) -> npt.NDArray[np.bool_] | None:
    """Which records are clean, perhaps but for ``nulls``; None if no record is, because a field is
    missing or is of another kind."""
    mask = np.ones(frame.height, np.bool_)
    for name, kind in kinds.items():
        if name not in frame.columns or (kind and kind_of(frame[name].dtype) != kind):
            return None
        column = frame[name]
        if nulls and kind == "float":
            column = column.fill_null(0.0)
        if not nulls:
            mask &= column.is_not_null().to_numpy()
        if kind == "float":
            mask &= np.isfinite(column.to_numpy())
    return mask


def is_pattern(name: str) -> bool:
    """Whether Polars takes the name of a field for a pattern of names."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))
