"""The rows of a change log in columns: a batch brings rows, or takes rows back.

Records that take back have the mark of their row form as one more field, in each record of their
batch. So a batch means the same in either form, and code that reads its rows needs no other sign.
"""

from __future__ import annotations

from collections.abc import Sequence

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.expressions.inner_fields import as_records, is_inner, with_inner_fields
from millwheel.core.lazy_polars import pl
from millwheel.core.windows.panes import MARKED, RETRACTION_FIELD


def retractions_of(frame: pl.DataFrame) -> pl.DataFrame:
    """Records that take these back."""
    mark = pl.Series(RETRACTION_FIELD, [MARKED], pl.Int64)
    return frame.with_columns(mark.new_from_index(0, frame.height))


def narrowed(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Only these fields of records, or fields within their fields; the mark only if it is requested
    and there."""
    chosen = [name for name in names if name != RETRACTION_FIELD or name in frame.columns]
    if not any(map(is_inner, chosen)):
        return frame.select(chosen)
    opened = with_inner_fields(frame, chosen).select(chosen)
    return pl.DataFrame(as_records(opened.get_columns()))


def are_retractions(batch: ColumnBatch) -> bool | None:
    """Whether the records of a batch take others back; None where each has to be checked."""
    if RETRACTION_FIELD not in batch.frame.columns:
        return False
    marks = batch.frame[RETRACTION_FIELD]
    whole = marks.dtype == pl.Int64 and not marks.null_count() and bool((marks == MARKED).all())
    return True if whole else None
