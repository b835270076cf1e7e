"""Lists of values, one for each group, which are divided and joined for all groups at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millwheel.core.lazy_polars import pl

Int64s = npt.NDArray[np.int64]


def spread(lists: pl.Series) -> tuple[Int64s, pl.Series]:
    """All values of the lists of groups, or of their lists of lists, in order, without nulls;
    before them, the number of the group of each."""
    numbers = np.arange(len(lists), dtype=np.int64)
    values = lists
    while isinstance(values.dtype, pl.List):
        lengths = values.list.len().fill_null(0).to_numpy().astype(np.int64)
        numbers = np.repeat(numbers, lengths)
        values = values.explode(empty_as_null=False, keep_nulls=False)
    if values.null_count():
        mask = values.is_not_null()
        numbers, values = numbers[mask.to_numpy()], values.filter(mask)
    return numbers, values


def gathered(numbers: Int64s, values: pl.Series, groups: int) -> pl.Series:
    """The inverse: a list of values for each of so many groups. ``numbers`` has the group of each
    value, in order."""
    ordered = pl.Series("number", numbers).set_sorted()
    frame = (
        pl.DataFrame([ordered, values.alias("values")])
        .group_by("number", maintain_order=True)
        .agg("values")
    )
    if frame.height < groups:
        every = pl.DataFrame({"number": np.arange(groups, dtype=np.int64)})
        frame = every.join(frame, on="number", how="left", maintain_order="left")
        frame = frame.with_columns(pl.col("values").fill_null(pl.lit([], pl.List(values.dtype))))
    return frame["values"]
