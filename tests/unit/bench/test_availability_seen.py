from __future__ import annotations

from pathlib import Path

import pytest

from bench.availability import Writer, differences
from bench.availability_seen import RANGES, Availability, availability, gap, lines, look
from millwheel.core.model.keys import key_hash

ONE, OTHER = (
    0,
    next(
        key for key in range(1, 100) if key_hash(key) * RANGES >> 64 != key_hash(0) * RANGES >> 64
    ),
)


def test_a_second_is_available_when_everything_made_in_it_was_seen_within_one_second() -> None:
    seen = look(
        [
            (10.3, [(ONE, 1, 10.2)]),
            (11.9, [(ONE, 2, 11.1), (OTHER, 1, 10.8)]),
            (13.0, [(OTHER, 2, 12.5)]),
        ]
    )
    assert {at: max(ways) for at, ways in seen.worst.items()} == pytest.approx(
        {10: 1.1, 11: 0.8, 12: 0.5}
    )
    found = availability(seen, 10, 14)
    assert found == Availability(3, 2, 1 / RANGES)
    assert found.at(kills=2, apart_s=10) == pytest.approx(1 - 1 / RANGES / 20)


def test_what_is_shown_again_after_a_kill_counts_as_it_was_seen_first() -> None:
    seen = look([(10.3, [(ONE, 1, 10.2)]), (19.0, [(ONE, 1, 10.2), (ONE, 2, 18.9)])])
    assert {at: max(ways) for at, ways in seen.worst.items()} == pytest.approx({10: 0.1, 18: 0.1})
    assert seen.records == {ONE: 2}


def test_the_gap_is_the_longest_silence_of_any_range() -> None:
    keys = {key_hash(key) * RANGES >> 64: key for key in range(2_000)}
    assert len(keys) == RANGES
    noted = [(at / 10, [(key, at, at / 10) for key in keys.values()]) for at in range(100, 131)]
    silent = keys[3]
    noted = [
        (at, [row for row in rows if row[0] != silent or not 11.0 < at < 12.0])
        for at, rows in noted
    ]
    assert gap(look(noted), 10.0, 13.0) == pytest.approx(1.0)


def test_a_line_that_a_kill_has_torn_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("[2.0,[[1,1,1.5]]]\n[3.0,[[1,2,")
    (tmp_path / "b.jsonl").write_text("[1.0,[[2,1,0.5]]]\n")
    assert [at for at, _ in lines(tmp_path)] == [1.0, 2.0]


def test_missing_doubled_and_wrong_rows_are_told() -> None:
    writer = Writer(Path(), 1)
    writer.rows = {(1, 0): [5, 5], (2, 0): [3, 3], (3, 0): [1, 1], (4, 0): [2, 2]}
    found = {(1, 0): [[5, 5]], (2, 0): [[3, 3], [3, 3]], (3, 0): [[2, 2]], (9, 0): [[1, 1]]}
    assert [text.split(",")[0] for text in differences(writer, found)] == [
        "key 2",
        "key 3",
        "key 4",
        "key 9",
    ]
