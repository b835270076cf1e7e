import json
from pathlib import Path
from typing import Any

import pytest

from bench.checks import check_outliers, check_windows
from bench.inputs import outliers

EVENTS = [
    {"ad_id": 1, "type": "click", "cost": 0.5, "ts": 60_001},
    {"ad_id": 1, "type": "impression", "cost": 0.25, "ts": 119_999},
    {"ad_id": 2, "type": "impression", "cost": 1.0, "ts": 120_000},
]
ROWS = [
    {"ad_id": 1, "window_start": 60_000_000, "impressions": 1, "clicks": 1, "spend": 0.75},
    {"ad_id": 2, "window_start": 120_000_000, "impressions": 1, "clicks": 0, "spend": 1.0},
]


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def wrong(tmp_path: Path, rows: list[dict[str, Any]]) -> int:
    return check_windows(
        write(tmp_path / "in", EVENTS), "jsonl", write(tmp_path / "out", rows)
    ).wrong


def test_right_windows_are_right_and_what_engines_hide_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "out" / "_metadata").mkdir(parents=True)
    (tmp_path / "out" / "_metadata" / "0.json").write_text("v1")
    assert wrong(tmp_path, ROWS) == 0


@pytest.mark.parametrize(
    "rows",
    [
        ROWS[:1],
        [*ROWS, {**ROWS[0], "window_start": 0}],
        [*ROWS, ROWS[1]],
        [ROWS[0], {**ROWS[1], "clicks": 1}],
        [ROWS[0], {**ROWS[1], "spend": 1.1}],
    ],
    ids=["missing", "surplus", "twice", "count", "sum"],
)
def test_a_row_that_is_wrong_in_any_way_is_found(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    assert wrong(tmp_path, rows) == 1


def test_no_results_are_wrong(tmp_path: Path) -> None:
    assert wrong(tmp_path, []) == 1


def test_outliers_must_be_those_each_once_with_their_deviation(tmp_path: Path) -> None:
    want = {"a": 4.5, "b": -5.0}
    rows = [{"event_id": "a", "z": 4.5}, {"event_id": "b", "z": -5.0}]
    assert check_outliers(want, write(tmp_path / "1", rows)).correct
    assert check_outliers(want, write(tmp_path / "2", rows[:1])).wrong == 1
    assert check_outliers(want, write(tmp_path / "3", [*rows, rows[0]])).wrong == 1
    assert (
        check_outliers(want, write(tmp_path / "4", [rows[0], {"event_id": "b", "z": -5.1}])).wrong
        == 1
    )
    assert (
        check_outliers(want, write(tmp_path / "5", [*rows, {"event_id": "c", "z": 9.0}])).wrong == 1
    )


def test_the_plain_program_tells_what_is_far_from_thirty_earlier_costs_of_its_own_key() -> None:
    costs = [1.0, 1.1] * 15
    found = outliers(
        [str(index) for index in range(62)],
        [7] * 31 + [8] * 31,
        [*costs, 9.0, *costs[1:], 1.0, 1.0],
    )
    assert list(found) == ["30"]
    assert found["30"] > 100
