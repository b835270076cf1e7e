"""Joins whose results span several commits, against those that fit into one, and through crashes at
every place. The joins of all records without room are those of ``keyed_joins``, with the fixture
``room``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.formats.codec import decode_value
from millwheel.engine.workers.operators import suspension
from millwheel.engine.workers.operators.keyed_joins import interval
from millwheel.engine.workers.operators.keyed_joins.regular import RegularJoined
from millwheel.errors import RecordError
from millwheel.testing import PipelineHarness, assert_survives_crashes
from millwheel.tools.testing.pushes import DEFAULT_PARTITION
from tests.unit.engine.workers.operators.column_runs import in_bundles
from tests.unit.engine.workers.operators.keyed_joins import test_interval as near
from tests.unit.engine.workers.operators.keyed_joins import test_regular as two
from tests.unit.engine.workers.operators.keyed_joins.conftest import take_room


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    take_room(monkeypatch)
    monkeypatch.setattr(interval, "_FEW", 2)  # so few that segments are made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suspended_joins")


@pytest.mark.parametrize("kind", two.KINDS)
@settings(max_examples=10)
@given(two.pushes)
def test_records_that_come_together_wait_for_each_other(
    folder: Path, kind: str, pushes: list[tuple[str, two.Row]]
) -> None:
    names = ("shown", "clicked")
    sides = [[value for of, value in pushes if of == name] for name in names]
    back = [{**value, "__retraction__": True} for value in sides[0][:2]]
    with PipelineHarness(two.joined(folder / f"together_{kind}", kind)) as harness:
        harness.push("shown", back)
        for name, values in zip(names, sides, strict=True):
            harness.push(name, values)
        rows = harness.take("matched")
    assert two.folded(rows) == two.whole(kind, sides[0][2:], sides[1], names)


@pytest.mark.parametrize("kind", near.KINDS)
@settings(max_examples=15)
@given(st.lists(near.records, max_size=9), st.lists(near.records, max_size=9), st.integers(0, 12))
def test_a_watermark_that_passes_waiting_records_removes_nothing_that_they_are_to_meet(
    folder: Path, kind: str, lefts: list[near.Row], rights: list[near.Row], watermark: int
) -> None:
    """They are on time, or late, as they were when they came."""
    path = near.joined(folder / f"passed_{kind}", kind, near.NEAR)
    with PipelineHarness(path) as harness:
        harness.push("shown", lefts)
        source = harness._inputs.taking("clicked", "pushed to")
        source.push(rights, DEFAULT_PARTITION)
        for each in harness._inputs.chosen(None):
            each.state_watermark(watermark, None)
        harness._cluster.read(["clicked", "shown"])
        harness.finish()
        rows = harness.take("matched")
        assert harness.remembered()["matched"] == {}
    pushes = [("shown", each) for each in lefts] + [("clicked", each) for each in rights]
    assert near.counted(rows) == near.counted(list(near.whole(kind, near.NEAR, pushes)))


@pytest.mark.parametrize("join", ["left", "inner"])
@settings(max_examples=25)
@given(
    st.lists(two.pushes, min_size=1, max_size=3),
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
)
def test_records_that_wait_find_what_lived_when_they_came(
    folder: Path, join: str, parts: list[list[tuple[str, two.Row]]], watermarks: tuple[int, ...]
) -> None:
    """A time to live may pass meanwhile."""

    def found() -> tuple[Counter[str], Any]:
        path = two.joined(folder / f"ttl_{join}", f"{{kind: {join}, ttl: 2us}}")
        with PipelineHarness(path) as harness:
            highest = 0
            for pushes, watermark in zip(parts, watermarks, strict=False):
                highest = max(highest, watermark)
                for name in ("shown", "clicked"):
                    values = [value for of, value in pushes if of == name]
                    harness._inputs.taking(name, "pushed to").push(values, DEFAULT_PARTITION)
                for each in harness._inputs.chosen(None):
                    each.state_watermark(highest, None)
                harness._cluster.read(["shown", "clicked"])
            harness.finish()
            return two.folded(harness.take("matched")), harness.remembered()["matched"]

    waiting = found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suspension, "ROOM_BYTES", 1 << 20)
        assert waiting == found()


@pytest.mark.parametrize("kind", ["outer", "semi"])
def test_a_join_without_room_survives_crashes(tmp_path: Path, kind: str) -> None:
    shown = [two.row(at, what=what) for at, what in enumerate("abcdefghijk")]
    records = {"shown": [*shown, two.row(4, ad=2)], "clicked": [two.row(2), two.row(25)]}
    story = in_bundles(records, 4)
    assert assert_survives_crashes(two.joined(tmp_path, kind), story, every=13) > 2


def shard_of(harness: PipelineHarness) -> Any:
    """The shard of the key."""
    return harness._shard("matched", 1)


def test_one_record_takes_as_many_bundles_as_its_partners_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 10 * (suspension.RESULT_BYTES + 40)
    monkeypatch.setattr(suspension, "ROOM_BYTES", room)
    most = 0
    right = suspension.Suspending.resumed

    def counted(self: Any, ctx: Any) -> Iterator[Any]:
        nonlocal most
        before = ctx._bundle.outputs.count
        yield from right(self, ctx)
        most = max(most, ctx._bundle.outputs.count - before)

    monkeypatch.setattr(suspension.Suspending, "resumed", counted)
    with PipelineHarness(two.joined(tmp_path, "inner")) as harness:
        harness.push("shown", [two.row(at, what=str(at)) for at in range(100)])
        before = shard_of(harness).meta.number
        harness.push("clicked", two.row(50))
        assert len(harness.take("matched")) == 100
        bundles = shard_of(harness).meta.number - before
    assert 0 < most < 15, "each bundle makes what it has room for"
    assert 8 <= bundles <= 30


def test_the_watermark_waits_for_what_is_still_to_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of suspended records are on time, as those of one step are."""
    held = []
    right = suspension.Suspending.resumed

    def watched(self: Any, ctx: Any) -> Iterator[Any]:
        held.append(shard_of(harness).watermark.work(0).at)
        yield from right(self, ctx)

    monkeypatch.setattr(suspension.Suspending, "resumed", watched)
    with PipelineHarness(two.joined(tmp_path, "inner")) as harness:
        harness.push("shown", [two.row(at, what=str(at)) for at in range(100)])
        harness.advance_watermark(30)
        harness.push("clicked", [two.row(50), two.row(40)])
        assert not held[0] <= 50, "no timer holds it in the bundle in which the records come"
        assert len(held) > 100
        assert max(held[1:]) <= 50
        assert not harness.timers("matched", 1)
        assert shard_of(harness).watermark.work(0).at > 1_000


def test_while_many_records_wait_the_inbox_keeps_what_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspension, "_MOST_WAITING", 5)
    crowded = 0
    right = suspension.Suspending.resumed

    def watched(self: Any, ctx: Any) -> Iterator[Any]:
        nonlocal crowded
        yield from right(self, ctx)
        taken = shard_of(harness).operator.intake(7, 0, 0)
        assert taken == (0 if ctx.suspension.crowded else 7)
        crowded += bool(ctx.suspension.crowded)

    monkeypatch.setattr(suspension.Suspending, "resumed", watched)
    with PipelineHarness(two.joined(tmp_path, "inner")) as harness:
        harness.push("shown", [two.row(at, what=str(at)) for at in range(9)])
        harness.push("clicked", [two.row(at) for at in range(20)])
        assert len(harness.take("matched")) == 180
        assert shard_of(harness).operator.intake(7, 0, 0) == 7
    assert crowded > 9


def test_a_record_that_fails_as_it_goes_on_is_a_dead_letter_and_those_behind_it_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = RegularJoined._produce_pair

    def failing(self: Any, ctx: Any, side: int, data: bytes, partner: bytes, *rest: Any) -> None:
        if decode_value(data)["at"] == 5 and decode_value(partner)["what"] == "19":
            raise RecordError("the pair nests too deeply")
        right(self, ctx, side, data, partner, *rest)

    monkeypatch.setattr(RegularJoined, "_produce_pair", failing)
    with PipelineHarness(two.joined(tmp_path, "inner")) as harness:
        harness.push("shown", [two.row(at, what=str(at)) for at in range(20)])
        harness.push("clicked", [two.row(4), two.row(5), two.row(6)])
        pairs = harness.take("matched")
        [letter] = harness.read("dead_letters")
        harness.push("clicked", two.row(7))
        assert len(harness.take("matched")) == 20
        assert not harness.timers("matched", 1)
    assert letter["value"] == two.row(5)
    clicked = Counter(each["clicked"]["at"] for each in pairs)
    assert (clicked[4], clicked[6]) == (20, 20)
