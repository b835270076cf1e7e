from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import SPACE, KeyRange, tile
from millwheel.core.model.records import Batch
from millwheel.engine.workers.delivery.high_water_marks import (
    AppliedHighWaterMarks,
    HighWaterMarks,
    decode_high_water_marks,
    encode_high_water_marks,
    joined_high_water_marks,
)

LOWER, UPPER = tile(2)
IN_LOWER = next(key for key in range(100) if key_hash(key) in LOWER)
IN_UPPER = next(key for key in range(100) if key_hash(key) in UPPER)


def batch(*records: tuple[int, int]) -> Batch:
    seqs, keys = [seq for seq, _ in records], [key for _, key in records]
    return Batch("s", seqs, [0] * len(seqs), keys, list(seqs))


def test_halves_with_the_same_mark_have_one_mark() -> None:
    assert joined_high_water_marks([(LOWER, 7), (UPPER, 7)]) == 7


def test_records_are_cut_off_by_the_mark_of_their_own_half() -> None:
    marks = HighWaterMarks(((LOWER, 3), (UPPER, 6)))
    came = batch((3, IN_LOWER), (4, IN_LOWER), (5, IN_UPPER), (6, IN_UPPER), (7, IN_UPPER))
    assert marks.fresh(came).seqs == [4, 7]


def test_columns_are_cut_off_as_rows_are() -> None:
    keys = [IN_LOWER, IN_UPPER, IN_LOWER, IN_UPPER]
    frame = pl.DataFrame({"v": [1, 2, 3, 4]})
    came = ColumnBatch("s", np.array([2, 5, 6, 8]), np.zeros(4, np.int64), pl.Series(keys), frame)
    fresh = HighWaterMarks(((LOWER, 5), (UPPER, 6))).fresh(came)
    assert list(fresh.seqs) == [6, 8]
    assert fresh.frame["v"].to_list() == [3, 4]


def test_a_delivery_raises_every_mark_to_its_end_and_one_beyond_all_makes_them_one() -> None:
    marks = HighWaterMarks(((LOWER, 3), (UPPER, 6)))
    assert marks.raised(5) == HighWaterMarks(((LOWER, 5), (UPPER, 6)))
    assert marks.raised(6) == 6
    assert marks.raised(9) == 9


def test_marks_are_divided_with_the_range() -> None:
    quarter = KeyRange(0, SPACE // 4)
    assert joined_high_water_marks([(quarter, HighWaterMarks(((LOWER, 3), (UPPER, 6))))]) == 3


def test_what_a_commit_says_stays_uneven_until_all_marks_are_passed() -> None:
    applied = AppliedHighWaterMarks({"even": 4, "uneven": HighWaterMarks(((LOWER, 3), (UPPER, 6)))})
    assert decode_high_water_marks(applied.after("even", 9)) == 9
    assert decode_high_water_marks(applied.after("uneven", 5)) == HighWaterMarks(
        ((LOWER, 5), (UPPER, 6))
    )
    assert decode_high_water_marks(applied.after("uneven", 8)) == 8
    assert decode_high_water_marks(applied.after("uneven", 10)) == 10


edges = st.lists(st.integers(1, SPACE - 1), unique=True, max_size=4).map(sorted)


@given(edges, st.data())
def test_marks_survive_the_store(inner: list[int], data: st.DataObject) -> None:
    bounds = [0, *inner, SPACE]
    pieces = [(KeyRange(lo, hi), data.draw(st.integers(0, 9))) for lo, hi in pairwise(bounds)]
    marks = joined_high_water_marks(pieces)
    assert decode_high_water_marks(encode_high_water_marks(marks)) == marks
