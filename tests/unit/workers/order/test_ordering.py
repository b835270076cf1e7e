"""order_by in the real runtime, against plain Python, and through crashes at every place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.workers.operators.combinations import hit, hits, written

ORDER = """
computations:
  follow:
    input: {hits: {key: user}}
    callback: follow:Follow
    order_by: timestamp
    output: steps
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("combinations")


def in_order(records: list[dict[str, Any]], user: str) -> list[tuple[str, int]]:
    """What the callback does when it is called in order: bells ring before what comes after them."""
    told: list[tuple[int, int, str]] = []
    mine = sorted((r for r in records if r["user"] == user), key=lambda r: r["at"])
    bells: list[int] = []
    due = None
    for record in mine:
        if due is not None and due < record["at"]:
            bells.append(due)
            told.append((due, 1, "bell"))
            due = None
        told.append((record["at"], 0, record["page"]))
        if record["page"] == "timer":
            due = record["at"] + 3
    if due is not None:
        told.append((due, 1, "bell"))
    return [(what, at) for at, _, what in told]


@given(records=hits, step=st.integers(1, 30))
@settings(max_examples=30, deadline=None)
def test_records_and_timers_come_in_the_order_of_their_times(
    folder: Path, records: list[dict[str, Any]], step: int
) -> None:
    with PipelineHarness(written(folder / "order", ORDER)) as harness:
        harness.push("hits", records)
        assert harness.read("steps") == []
        for watermark in range(0, 60, step):
            harness.advance_watermark(watermark)
        harness.finish()
        for user in ("ann", "bob"):
            got = [(row["what"], row["at"]) for row in harness.read("steps") if row["user"] == user]
            assert [at for _, at in got] == sorted(at for _, at in got)
            assert sorted(got) == sorted(in_order(records, user))
        assert harness.counters.get("followed", 0) == len(records)


def test_a_record_waits_until_the_watermark_has_passed_it(folder: Path) -> None:
    with PipelineHarness(written(folder / "order", ORDER)) as harness:
        harness.push("hits", [hit(20), hit(10)])
        harness.advance_watermark(20)
        assert [row["at"] for row in harness.take("steps")] == [10]
        harness.crash()
        harness.advance_watermark(21)
        assert [row["at"] for row in harness.take("steps")] == [20]
        assert harness.state("follow", "ann") == {"seen": [10, 20]}


def test_a_record_that_fails_in_its_bundle_is_a_dead_letter_of_its_own(folder: Path) -> None:
    with PipelineHarness(written(folder / "order", ORDER)) as harness:
        harness.push("hits", [hit(3), hit(2, page="poison"), hit(1)])
        harness.finish()
        assert [row["at"] for row in harness.read("steps")] == [1, 3]
        [letter] = harness.read("dead_letters")
        assert (letter["value"], letter["stream"], letter["attempts"]) == (hit(2, page="poison"), "hits", 3)
        assert harness.counters["followed"] == 2


def test_order_survives_crashes(folder: Path) -> None:
    records = [hit(9), hit(3, page="timer"), hit(7), hit(6, user="bob"), hit(1), hit(5, page="poison")]
    assert assert_survives_crashes(written(folder / "order", ORDER), {"hits": records}, every=3) > 10
