"""Joins in windows whose results span several commits, against those that fit into one, and
through crashes at many of its commits."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.model.records import Domain
from millwheel.core.pipeline.work import JoinKind
from millwheel.engine.workers.operators import record_joins, suspension
from millwheel.engine.workers.operators.windows import join_columns
from millwheel.engine.workers.operators.windows.join import WindowJoinOperator
from millwheel.engine.workers.sources.frames import ReadSize
from millwheel.errors import RecordError
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.windows import test_join_columns
from tests.unit.engine.workers.operators.windows import test_refiring as again

NO_ROOM = 1
"""Bytes: one result for each part of a bundle."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suspended_windows")


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspension, "ROOM_BYTES", NO_ROOM)
    monkeypatch.setattr(suspension, "LEAST_BYTES", NO_ROOM)
    monkeypatch.setattr(join_columns, "LEAST_BYTES", NO_ROOM)
    monkeypatch.setattr(join_columns, "_MOST_PAIR_BYTES", NO_ROOM)
    monkeypatch.setattr(record_joins, "_PART_BYTES", NO_ROOM)


@pytest.mark.parametrize("window", again.WINDOWS)
@settings(max_examples=25)
@given(
    st.sampled_from([kind.value for kind in JoinKind]),
    again.pushes,
    st.integers(0, 6),
    st.sampled_from(["", *again.AGAIN.values()]),
)
def test_what_windows_say_is_the_join_of_what_they_have(
    folder: Path, window: str, kind: str, pushes: Any, crash: int, more: str
) -> None:
    """Also where a window fires again, or is another by then, before it is through."""

    def found() -> Counter[str]:
        path = again.written(folder / f"{kind}_{window}", again.WINDOWS[window], kind, more)
        with PipelineHarness(path) as harness:
            for number, (stream, values) in enumerate(pushes):
                if number == crash:
                    harness.crash()
                harness.push(stream, values)
            harness.finish()
            rows, state = harness.take("matched"), harness.remembered()["matched"]
        assert state == {}, "nothing is left of windows that are through"
        return again.folded(rows)

    waiting = found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suspension, "ROOM_BYTES", 1 << 20)
        patch.setattr(join_columns, "_MOST_PAIR_BYTES", 1 << 20)
        assert waiting == found()


@pytest.mark.parametrize("more", ["", again.AGAIN["both"]])
def test_a_window_without_room_survives_crashes(tmp_path: Path, more: str) -> None:
    shown = [again.row(at % 10, what=what) for at, what in enumerate("abcdefg")]
    records = {"shown": [*shown, again.row(25)], "clicked": [again.row(2), again.row(25)]}
    path = again.written(tmp_path, again.WINDOWS["tumbling"], "left", more)
    assert assert_survives_crashes(path, records, every=11) > 2


@pytest.mark.parametrize(("deep", "found"), [(9, (12, 0)), (10, (0, 1))])
def test_a_window_has_all_its_results_or_a_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deep: int, found: tuple[int, int]
) -> None:
    monkeypatch.setattr(record_joins, "MOST_NESTING", 10)  # no more than a push can copy
    nested: Any = "x"
    for _ in range(deep - 1):
        nested = [nested]
    shown = [*(again.row(at) for at in range(5)), {**again.row(6), "what": nested}]
    with PipelineHarness(again.written(tmp_path, "{session: 4us}", "inner")) as harness:
        harness.push("shown", shown)
        harness.push("clicked", [again.row(2), again.row(3)])
        harness.finish()
        assert (len(harness.take("matched")), len(harness.read("dead_letters"))) == found


@pytest.mark.parametrize("more", ["", again.AGAIN["late"]])
def test_a_window_that_waits_behind_another_has_the_same_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """With its records, which are nowhere any more once it has waited."""
    for module in (record_joins, join_columns):
        monkeypatch.setattr(module, "MOST_NESTING", 10)
    nested: Any = "x"
    for _ in range(9):
        nested = [nested]

    def found(times: list[int]) -> tuple[int, list[Any]]:
        with PipelineHarness(again.written(tmp_path, "{tumbling: 10us}", "inner", more)) as harness:
            harness.push("shown", [*map(again.row, times), {**again.row(11), "what": nested}])
            harness.push("clicked", [again.row(1), again.row(11), again.row(12)])
            harness.finish()
            assert harness.remembered()["matched"] == {}
            letters = [(each["value"], each["reason"]) for each in harness.read("dead_letters")]
            return len(harness.take("matched")), letters

    said, [letter] = found([])
    assert (said, letter[0]["count"]) == (0, 3)
    assert found([1, 2, 3]) == (3, [letter])
    monkeypatch.setattr(suspension, "ROOM_BYTES", 1 << 20)
    assert found([1, 2, 3]) == (3, [letter])


@pytest.mark.parametrize("more", ["", again.AGAIN["late"]])
def test_a_window_that_cannot_go_on_is_a_letter_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """The next window of its key goes on, with its own parts."""
    right = record_joins.Joined._produce_result

    def produce_result(
        self: record_joins.Joined, ctx: Any, head: Any, values: Any, back: bool
    ) -> None:
        if head["window_end"] == 20 and b"last" in (values[0] or b""):
            raise RecordError("no")
        right(self, ctx, head, values, back)

    monkeypatch.setattr(record_joins.Joined, "_produce_result", produce_result)
    with PipelineHarness(again.written(tmp_path, "{tumbling: 10us}", "inner", more)) as harness:
        shown = [*[again.row(at) for at in (1, 2, 11, 12)], again.row(13, what="last")]
        harness.push("shown", [*shown, *[again.row(at) for at in (21, 22, 23)]])
        harness.push("clicked", [again.row(at) for at in (1, 2, 11, 21, 22)])
        harness.finish()
        said = Counter(each["window_end"] for each in harness.take("matched"))
        assert said == {10: 4, 20: 2, 30: 6}
        [letter] = harness.read("dead_letters")
        assert letter["value"] == {"window_start": 10, "window_end": 20}
        assert harness.remembered()["matched"] == {}


def test_what_waits_is_no_state_that_limits_meet(tmp_path: Path) -> None:
    """A shard that keeps whole bundles has no values of its keys, unless some wait."""
    path = again.written(tmp_path, "{tumbling: 10us}", "inner", "\nlimits: {state: 1KiB}")
    with PipelineHarness(path) as harness:
        harness.push("shown", [again.row(1, what="y" * 2_000) for _ in range(5)])
        harness.push("clicked", [again.row(1), again.row(2), again.row(21)])
        harness.finish()
        assert (len(harness.take("matched")), harness.read("dead_letters")) == (10, [])


def test_a_window_takes_as_many_bundles_as_its_results_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another window of the key says comes behind."""
    monkeypatch.setattr(suspension, "ROOM_BYTES", 10 * (suspension.RESULT_BYTES + 40))
    with PipelineHarness(again.written(tmp_path, "{session: 4us}", "inner")) as harness:
        harness.push("shown", [again.row(3, what=str(at)) for at in range(100)])
        harness.push("clicked", [again.row(3), again.row(20)])
        harness.push("shown", again.row(20))
        before = harness._shard("matched", 1).meta.number
        harness.finish()
        rows = harness.take("matched")
        assert [each["window_end"] for each in rows] == [7] * 100 + [24]
        assert harness._shard("matched", 1).meta.number - before > 4


def test_the_watermark_waits_for_a_window_that_is_not_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of a window that waits are on time, as those of one step are."""
    monkeypatch.setattr(suspension, "ROOM_BYTES", 10 * (suspension.RESULT_BYTES + 40))
    held = []
    right = WindowJoinOperator.run

    def watched(self: Any, bundle: Any) -> None:
        right(self, bundle)
        if self._suspension.has(1):
            held.append(bundle.timers[Domain.EVENT].get(1, suspension.SUSPENDED_TAG))

    monkeypatch.setattr(WindowJoinOperator, "run", watched)
    with PipelineHarness(again.written(tmp_path, "{tumbling: 10us}", "inner")) as harness:
        harness.push("shown", [again.row(3, what=str(at)) for at in range(100)])
        harness.push("clicked", again.row(3))
        harness.advance_watermark(30)
        assert len(harness.take("matched")) == 100
        assert len(held) >= 4
        assert set(held) == {9}, "what was sent may have been acked before the rest is"
        assert harness._shard("matched", 1).watermark.work(0).at > 9


def test_what_a_key_says_in_columns_comes_behind_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next window has few pairs, and has closed with the one before, or while that waits."""
    for kind in ("note", "__init__"):
        monkeypatch.setattr(
            ReadSize, kind, lambda self, was_full=False: setattr(self, "bytes", 2048)
        )
    monkeypatch.setattr(suspension, "ROOM_BYTES", 10_000)
    monkeypatch.setattr(join_columns, "_MOST_PAIR_BYTES", 30_000)
    path = test_join_columns.in_files(tmp_path, how="inner")
    times = (*[5] * 20, *range(60, 900, 20))
    rows = [{**test_join_columns.of_file(0, 0), "ad": 1, "at": at} for at in times]
    for name, left_out in (("shown", ""), ("clicked", "odd")):
        lines = [json.dumps({each: row[each] for each in row if each != left_out}) for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join([*lines, ""]))
    with PipelineHarness(path, shards=1, run_sources=True) as harness:
        harness.advance_processing_time(10**9)
        ends = [each["window_end"] for each in harness.read("matched")]
        assert len(ends) == 400 + 21 * 4
        assert ends == sorted(ends)
