"""What a segment has of a key replaces what older ones have of it."""

from __future__ import annotations

import polars as pl
import pytest

from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state.codes import KeyCodes
from millwheel.core.columns.state.newest import NewestOfKey, newest_of


def segment(*rows: tuple[int, str], texts: bool = False) -> pl.DataFrame:
    frame = pl.DataFrame(rows, [KEY, "row"], orient="row")
    return frame.with_columns(pl.col(KEY).cast(pl.String)) if texts else frame


@pytest.mark.parametrize("texts", [False, True])
def test_the_newest_segment_with_some_of_a_key_counts(texts: bool) -> None:
    segments = [
        segment((1, "a"), (2, "b"), (3, "c"), texts=texts),
        segment((2, "d"), (2, "e"), texts=texts),
        segment((1, "f"), (4, "g"), texts=texts),
    ]
    whole = NewestOfKey().merge(segments)
    assert sorted(whole["row"]) == ["c", "d", "e", "f", "g"]
    keys = segment((2, ""), (4, ""), (9, ""), (2, ""), texts=texts)[KEY]
    codes = KeyCodes(keys)
    frames, numbers = newest_of(codes, segments)
    assert sorted(row for frame in frames for row in frame["row"]) == ["d", "e", "g"]
    of_record = dict(zip(keys, codes.of_records.tolist(), strict=True))
    for frame, own in zip(frames, numbers, strict=True):
        assert [of_record[key] for key in frame[KEY]] == own.tolist()


def test_one_segment_is_as_it_was() -> None:
    alone = segment((1, "a"), (1, "b"))
    assert NewestOfKey().merge([alone]) is alone
