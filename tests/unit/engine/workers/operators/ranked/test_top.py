"""The first rows of each key in a shard: what is emitted, when, and what is left in state."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millwheel import as_retraction
from millwheel.errors import PipelineError
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import in_bundles

HEAD = "pipeline: p\nstreams: {bids: {source: {injection: {}}, timestamp: at}}\ncomputations:\n"
LAST = "  t: {input: {bids: {key: a}}, deduplicate: {keep: last}, output: rows}\n"
TOP = "  t: {input: {bids: {key: a}}, top: {by: [v desc], k: 2}, output: rows}\n"
PLACES = "  t: {input: {bids: {key: a}}, top: {by: [v desc], k: 2, rank: place}, output: rows}\n"
OF_TOPS = (
    "  t: {input: {bids: {key: a}}, top: {by: [v desc], k: 1}, output: best}\n"
    "  u: {input: {best: {key: all}}, top: {by: [v], k: 2}, output: rows}\n"
)


def written(folder: Path, computations: str) -> Path:
    file = folder / "p.yaml"
    file.write_text(HEAD + computations)
    return file


def bid(a: int, at: int, v: Any) -> dict[str, Any]:
    return {"a": a, "at": at, "v": v}


def changes(computations: str, folder: Path, *bundles: list[dict[str, Any]]) -> list[Any]:
    with PipelineHarness(written(folder, computations)) as harness:
        for rows in bundles:
            harness.push("bids", rows)
        assert harness.read("dead_letters") == []
        return [
            (row, "") if back is None else (back.value, "back")
            for row in harness.read("rows")
            for back in [as_retraction(row)]
        ]


def test_the_last_record_of_a_key_replaces_the_one_before(tmp_path: Path) -> None:
    got = changes(LAST, tmp_path, [bid(1, 5, 1), bid(1, 7, 2)], [bid(1, 6, 3)], [bid(1, 9, 4)])
    assert got == [(bid(1, 7, 2), ""), (bid(1, 7, 2), "back"), (bid(1, 9, 4), "")]


def test_an_earlier_record_takes_the_place_of_the_first(tmp_path: Path) -> None:
    first = LAST.replace("last", "first")
    got = changes(first, tmp_path, [bid(1, 5, 1)], [bid(1, 6, 2)], [bid(1, 4, 3)])
    assert got == [(bid(1, 5, 1), ""), (bid(1, 5, 1), "back"), (bid(1, 4, 3), "")]


def test_only_what_enters_and_leaves_is_emitted(tmp_path: Path) -> None:
    got = changes(TOP, tmp_path, [bid(1, 5, 5), bid(1, 6, 6)], [bid(1, 7, 4)], [bid(1, 8, 7)])
    assert got == [
        (bid(1, 6, 6), ""),
        (bid(1, 5, 5), ""),
        (bid(1, 5, 5), "back"),
        (bid(1, 8, 7), ""),
    ]


def test_with_places_rows_that_have_moved_come_anew(tmp_path: Path) -> None:
    got = changes(PLACES, tmp_path, [bid(1, 5, 5)], [bid(1, 8, 7)])
    assert got == [
        ({**bid(1, 5, 5), "place": 1}, ""),
        ({**bid(1, 5, 5), "place": 1}, "back"),
        ({**bid(1, 8, 7), "place": 1}, ""),
        ({**bid(1, 5, 5), "place": 2}, ""),
    ]


def test_where_rows_are_taken_back_the_next_one_moves_up(tmp_path: Path) -> None:
    got = changes(OF_TOPS, tmp_path, [bid(1, 5, 1), bid(2, 5, 2), bid(3, 5, 3)], [bid(1, 6, 9)])
    folded: Counter[str] = Counter()
    for row, word in got:
        folded[str(row)] += -1 if word else 1
    assert +folded == Counter([str(bid(2, 5, 2)), str(bid(3, 5, 3))])
    assert got[-2:] == [(bid(1, 5, 1), "back"), (bid(3, 5, 3), "")]


def test_a_record_without_a_place_is_a_dead_letter_alone(tmp_path: Path) -> None:
    with PipelineHarness(written(tmp_path, TOP)) as harness:
        harness.push("bids", [bid(1, 5, 5), bid(1, 6, None)])
        (letter,) = harness.read("dead_letters")
        assert letter["value"] == bid(1, 6, None)
        assert "needs a number or text, not NoneType None" in letter["reason"]
        assert harness.read("rows") == [bid(1, 5, 5)]


@pytest.mark.parametrize("computations", [LAST, TOP, PLACES, OF_TOPS])
def test_crashes_change_nothing_of_the_rows(tmp_path: Path, computations: str) -> None:
    draw = random.Random(7)
    rows = [bid(draw.randrange(3), draw.randrange(50), draw.randrange(9)) for _ in range(20)]
    assert_survives_crashes(written(tmp_path, computations), in_bundles({"bids": rows}, 4), every=7)


def test_by_time_nothing_can_be_chosen_of_a_change_log(tmp_path: Path) -> None:
    behind = TOP.replace("rows", "best") + (
        "  u: {input: {best: {key: a}}, deduplicate: {keep: last}, output: rows}\n"
    )
    with pytest.raises(PipelineError, match="write top with an order of its own"):
        PipelineHarness(written(tmp_path, behind))


TABLE = """pipeline: p
streams:
  users:
    source: {injection: {}}
    timestamp: {field: at, unit: us}
    watermark: {max_delay: 0s}
    table: {key: id, delete: "op == 'd'"}
computations:
  cities: {input: {users: {key: city}}, aggregate: {n: count}, output: cities}
sinks: {cities: {stdout: {mode: changelog}}}
"""


def user(id: int, at: int, city: str, op: str = "u") -> dict[str, Any]:
    return {"id": id, "at": at, "city": city, "op": op}


def standing(values: list[Any]) -> Counter[str]:
    """What is left of rows and retractions, by their content."""
    found: Counter[str] = Counter()
    for value in values:
        back = as_retraction(value)
        row = value if back is None else back.value
        found[json.dumps(row, sort_keys=True)] += 1 if back is None else -1
    assert min(found.values(), default=0) >= 0
    return +found


def texts(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def test_a_table_follows_its_rows_whatever_comes_late_or_goes(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(TABLE)
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        harness.push("users", [user(1, 5, "a"), user(2, 5, "a"), user(1, 5, "b")])
        assert harness.take("users") == [user(1, 5, "b"), user(2, 5, "a")]
        assert standing(harness.read("cities")) == texts(
            [{"city": "a", "n": 1}, {"city": "b", "n": 1}]
        )
        harness.advance_watermark(100)
        harness.push("users", [user(1, 4, "late"), user(2, 7, "", "d"), user(3, 3, "late")])
        assert harness.take("users") == [
            {**user(2, 5, "a"), "__retraction__": 1},
            user(3, 3, "late"),
        ]
        harness.crash()
        harness.push("users", user(2, 6, "before it went"))
        assert harness.take("users") == []
        assert standing(harness.read("cities")) == texts(
            [{"city": "b", "n": 1}, {"city": "late", "n": 1}]
        )
        assert harness.counters.get("late", 0) == 0


def test_of_one_time_the_last_in_the_source_is_the_row_however_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(TABLE)
    rows = [user(1, 5, city) for city in "zabz"] + [user(1, 5, "m")]
    found = []
    for size, crash_every in ((1, None), (5, None), (2, 3)):
        with PipelineHarness(tmp_path / "p.yaml", crash_every=crash_every) as harness:
            for start in range(0, len(rows), size):
                harness.push("users", rows[start : start + size], key="p2")
            harness.push("users", user(1, 5, "first partition"), key="p1")
            found.append(standing(harness.read("users")))
    assert found == [texts([user(1, 5, "m")])] * 3


def test_a_row_that_cannot_be_judged_is_a_dead_letter_and_the_others_count(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(TABLE)
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        harness.push("users", [user(1, 5, "a"), {"id": 1, "at": 9, "city": "b"}, user(2, 6, "c")])
        assert harness.read("users") == [user(1, 5, "a"), user(2, 6, "c")]
        [letter] = harness.read("dead_letters")
        assert (letter["computation"], letter["stream"]) == ("table.users", "events.users")
        assert "table failed 3 times" in letter["reason"]
