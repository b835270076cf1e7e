from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.nexmark.judge import judged, number_wanted, rows_of
from bench.nexmark.query import Query

BIDS = [{"auction": 1, "price": 7}, {"auction": 1, "price": 7}, {"auction": 2, "price": 9}]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    for kind in ("person", "auction", "bid"):
        (tmp_path / f"{kind}-1.jsonl").write_text("".join(json.dumps(bid) + "\n" for bid in BIDS))
    return tmp_path


PLAIN = Query("", "", "select auction, price from bid", ("auction", "price"))
CHANGES = Query(
    "",
    "",
    "select auction, count(*) from bid group by 1",
    ("auction", "n"),
    key=("auction",),
    newest="n",
)


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        (BIDS, 0),
        (BIDS[1:], 1),
        ([*BIDS, BIDS[2]], 1),
        ([*BIDS[:2], {"auction": 2, "price": 8}], 2),
        ([], 3),
    ],
)
def test_each_row_counts_as_often_as_it_is_there(rows: list, wrong: int, events: Path) -> None:
    check = judged(PLAIN, events, rows)
    assert (check.rows, check.wrong) == (3, wrong)
    assert bool(check.example) == bool(wrong)


def test_rows_are_counted_without_being_made(events: Path) -> None:
    assert number_wanted(PLAIN, events) == 3


def test_counts_of_windows_that_nobody_can_know_are_added_up(events: Path) -> None:
    query = replace(CHANGES, key=(), newest="", added="n")
    rows = [{"auction": 1, "n": 1}, {"auction": 2, "n": 1}, {"auction": 1, "n": 1}]
    assert judged(query, events, rows).correct
    assert not judged(query, events, rows[1:]).correct


@pytest.mark.parametrize(
    ("versions", "wrong"),
    [([(1, 1), (2, 1), (1, 2)], 0), ([(1, 2), (1, 1), (2, 1)], 0), ([(1, 1), (2, 1)], 2)],
)
def test_of_a_change_log_the_newest_row_of_each_key_counts(
    versions: list[tuple[int, int]], wrong: int, events: Path
) -> None:
    rows = [{"auction": auction, "n": n} for auction, n in versions]
    assert judged(CHANGES, events, rows).wrong == wrong


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ([("+", 1), ("+", 2), ("-", 1), ("+", 7), ("-", 2), ("+", 9)], 1),
        ([("+", 7), ("+", 7), ("+", 9)], 0),
        ([("+", 7), ("+", 7), ("+", 9), ("-", 8)], 1),
    ],
)
def test_of_marked_rows_those_that_are_left_count(
    changes: list[tuple[str, int]], wrong: int, events: Path
) -> None:
    query = Query("", "", "select price from bid", ("price",), marked=True)
    rows = [{"change": mark, "price": price} for mark, price in changes]
    assert judged(query, events, rows).wrong == wrong


def test_rows_are_read_from_all_files_below_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jsonl").write_text('{"x": 1}\n{"x": 2}\n')
    (tmp_path / "2.jsonl").write_text('{"x": 3}\n')
    assert sorted(row["x"] for row in rows_of(tmp_path)) == [1, 2, 3]
