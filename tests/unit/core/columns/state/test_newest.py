"""What a segment has of a key replaces what older ones have of it; each key has a number."""

from __future__ import annotations

import polars as pl
import pytest

from millwheel.core.columns.batch import key_column, key_list
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


# codes.py: each key has one number, and others with it find it

FAR = 2**63 - 1


@pytest.mark.parametrize(
    ("keys", "others"),
    [
        ([pl.Series("a", [5, -7, 5])], [pl.Series("a", [-7, 6, 5, FAR])]),
        ([pl.Series("a", [FAR, -FAR, FAR])], [pl.Series("a", [0, FAR, -FAR])]),
        ([pl.Series("a", ["x", "y", "x"])], [pl.Series("a", ["", "y", "x"])]),
        (
            [pl.Series("a", [1, 1, 2]), pl.Series("b", [3, 4, 3])],
            [pl.Series("a", [2, 2, 1, 9]), pl.Series("b", [3, 4, 4, 3])],
        ),
    ],
    ids=["near", "far", "text", "pairs"],
)
def test_each_key_has_a_number_by_which_others_find_it(
    keys: list[pl.Series], others: list[pl.Series]
) -> None:
    own, more = key_column(keys), key_column(others)
    codes = KeyCodes(own)
    numbers = dict(zip(key_list(own), codes.of_records.tolist(), strict=True))
    assert sorted(numbers.values()) == list(range(codes.count))
    rows, found = codes.among(more)
    expected = [(at, numbers[key]) for at, key in enumerate(key_list(more)) if key in numbers]
    assert list(zip(rows.tolist(), found.tolist(), strict=True)) == expected
