"""Sinks of the current rows, through the real runtime: chains that retract, crashes at any place,
bounded state."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.sinks.base import SinkRecord
from millwheel.connect.sinks.files.marker import HIDDEN
from millwheel.connect.sinks.files.sink import build_files
from millwheel.core.formats.store_layout import ROW
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.spec import SinkSpec
from millwheel.core.windows.panes import retracted
from millwheel.engine.workers.sinks.upsert import Table, read_row
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.testing import PipelineHarness
from millwheel.tools.testing import pipeline_harness as harness_module
from millwheel.tools.testing.memory.disk import MemoryDisk
from millwheel.tools.testing.memory.stores import MemoryStore
from millwheel.tools.testing.rewiring import rewired
from millwheel.tools.testing.taps import Taps
from tests.fakes.faulty_files import Call, FaultyFiles

S = 1_000_000
PIPELINE = """
    pipeline: shop
    streams:
      orders: {source: {injection: {}}, timestamp: ts}
    computations:
      sessions:
        input: {orders: {key: who}}
        window: {session: 10s}
        aggregate: {worth: {sum: worth}}
        trigger: {after_watermark: {early: {after_count: 1}, late: {after_count: 1}}}
        accumulation: retracting
        allowed_lateness: 10m
        output: sessions
      totals:
        input: {sessions: {key: who}}
        window: global
        aggregate: {worth: {sum: worth}, sessions: count}
        trigger: {repeat: {after_count: 1}}
        accumulation: accumulating
        output: totals
    sinks:
      sessions: {files: {path: /sessions, mode: upsert}}
      totals: {files: {path: /totals, mode: upsert, by: who}}
"""
SINKS: dict[str, dict[str, Any]] = {
    "sessions": {"path": "/sessions", "mode": "upsert", "flush": "0s"},
    "totals": {"path": "/totals", "mode": "upsert", "by": "who", "flush": "0s"},
}


class Run:
    """A pipeline whose sinks write files to a disk in memory, which survives all crashes."""

    def __init__(
        self, pipeline: Path, look: Callable[[Call], None] = lambda call: None, **options: Any
    ) -> None:
        self.disk = MemoryDisk()
        self.look = look
        for sink in SINKS.values():
            build_files(sink, "/", self.disk).check("root")
        self.harness = PipelineHarness(pipeline, **options)

    def rows(self, stream: str) -> list[Any]:
        folder = f"/{stream}"
        found = []
        for name in self.disk.list_dir(folder):
            if name != HIDDEN:
                fd = self.disk.open_read(f"{folder}/{name}")
                found += [
                    json.loads(line)
                    for line in self.disk.read_at(fd, self.disk.size(fd), 0).splitlines()
                ]
                self.disk.close(fd)
        return found

    def sessions(self) -> list[tuple[str, int, int]]:
        return sorted(
            (row["who"], row["window_start"] // S, row["worth"]) for row in self.rows("sessions")
        )

    def totals(self) -> list[tuple[str, int, int]]:
        return sorted((row["who"], row["worth"], row["sessions"]) for row in self.rows("totals"))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    file = tmp_path / "pipeline.yaml"
    file.write_text(textwrap.dedent(PIPELINE))
    taps, made = Taps.build, []

    def build(self: Taps, spec: SinkSpec, folder: str) -> Any:
        if spec.stream not in SINKS:
            return taps(self, spec, folder)
        run = made[-1]
        return build_files(
            SINKS[spec.stream], "/", FaultyFiles(run.disk, before=run.look, after=run.look)
        )

    def keep_keys(spec: Any, **options: Any) -> Any:
        keys, wired = {sink.stream: sink.key for sink in spec.sinks}, rewired(spec, **options)
        sinks = [replace(sink, key=keys.get(sink.stream, sink.key)) for sink in wired.sinks]
        return replace(wired, sinks=tuple(sinks))

    monkeypatch.setattr(Taps, "build", build)
    monkeypatch.setattr(harness_module, "rewired", keep_keys)

    class Registered(Run):
        def __init__(self, *given: Any, **options: Any) -> None:
            made.append(self)
            super().__init__(*given, **options)

    yield lambda **options: Registered(file, **options)
    for run in made:
        run.harness.close()


def order(worth: int, at: int, who: str = "ann") -> dict[str, Any]:
    return {"who": who, "worth": worth, "ts": at * S}


def tell(run: Run) -> None:
    """The sessions of ann grow, join and are corrected late; bob has one."""
    harness = run.harness
    harness.push("orders", [order(1, 0), order(2, 15), order(4, 0, "bob")])
    harness.push("orders", order(8, 30))
    harness.advance_watermark(60 * S)
    harness.push("orders", order(16, 8))
    harness.push("orders", order(32, 200))
    harness.finish()


FINAL = [("ann", 0, 19), ("ann", 30, 8), ("ann", 200, 32), ("bob", 0, 4)]


def test_the_files_hold_the_rows_that_stand_and_no_others(start: Any) -> None:
    run = start()
    harness = run.harness
    harness.push("orders", [order(1, 0), order(2, 15), order(4, 0, "bob")])
    assert run.sessions() == [("ann", 0, 1), ("ann", 15, 2), ("bob", 0, 4)]
    harness.push("orders", order(16, 8))
    assert run.sessions() == [("ann", 0, 19), ("bob", 0, 4)]
    assert run.totals() == [("ann", 19, 1), ("bob", 4, 1)]
    harness.finish()
    assert [
        name for name in run.disk.list_dir(f"/sessions/{HIDDEN}") if name.endswith(".tmp")
    ] == []


def test_a_crash_at_any_place_changes_nothing(start: Any) -> None:
    whole = start()
    tell(whole)
    assert whole.sessions() == FINAL
    assert whole.totals() == [("ann", 59, 3), ("bob", 4, 1)]
    for unit in range(1, whole.harness.units + 1, 19):
        run = start(crash_at=unit)
        tell(run)
        assert (run.sessions(), run.totals()) == (FINAL, whole.totals()), f"unit {unit}"
        run.harness.close()


def test_a_reader_never_sees_two_versions_of_a_row(start: Any) -> None:
    runs: list[Run] = []

    def look(call: Call) -> None:
        if runs:
            whos = [row["who"] for row in runs[0].rows("totals")]
            assert len(whos) == len(set(whos))
            units_tried = [(row["who"], row["window_start"]) for row in runs[0].rows("sessions")]
            assert len(units_tried) == len(set(units_tried))

    run = start(look=look, crash_every=60)
    runs.append(run)
    tell(run)
    assert run.sessions() == FINAL


def test_state_is_as_large_as_the_table_and_not_as_its_history(start: Any) -> None:
    run = start(shards=1)
    for worth in range(50):
        run.harness.push("orders", order(worth, 5))
    [shard] = run.harness._cluster.shards_of("sink.sessions")
    assert len(list(shard.store.scan(ROW))) == 1
    assert list(shard.store.scan(b"r")) == []
    assert len(run.disk.list_dir("/sessions")) == 2


def test_what_is_not_visible_holds_the_watermark_of_the_sink(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SINKS, "sessions", {**SINKS["sessions"], "flush": "1m"})
    run = start(shards=1)
    run.harness.push("orders", order(1, 50))
    run.harness.advance_watermark(500 * S)
    assert run.sessions() == []
    [shard] = run.harness._cluster.shards_of("sink.sessions")
    assert shard.watermark.hold(0).at == 60 * S - 1
    assert shard.watermark.hold(0).holder == "rows that are not visible yet"
    run.harness.crash()
    assert run.sessions() == [("ann", 50, 1)]
    run.harness.push("orders", order(2, 500))
    assert run.sessions() == [("ann", 50, 1)]
    run.harness.advance_processing_time(120 * S)
    assert run.sessions() == [("ann", 50, 1), ("ann", 500, 2)]


def test_when_all_input_has_ended_nothing_waits(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SINKS, "sessions", {**SINKS["sessions"], "flush": "1h"})
    run = start()
    tell(run)
    assert run.sessions() == FINAL
    assert {
        shard.watermark.hold(0).at for shard in run.harness._cluster.shards_of("sink.sessions")
    } == {MAX_TIME}


def test_results_that_somebody_removed_are_there_again_with_the_next_owner(start: Any) -> None:
    run = start()
    tell(run)
    for name in run.disk.list_dir("/sessions"):
        if name != HIDDEN:
            run.disk.unlink(f"/sessions/{name}")
    run.harness.crash()
    assert run.sessions() == FINAL


# --- the table


def applied(*records: tuple[str, Any], by_window: bool = True) -> list[Any]:
    overlay, table = Overlay(MemoryStore(MemoryDisk(), "/store")), Table(by_window, 0)
    for key, value in records:
        table.apply(overlay, SinkRecord(key, value, 7))
    return [(row.key, row.value) for row in (read_row(data) for _, data in overlay.scan(ROW))]


def test_a_row_is_known_by_its_key_and_its_window() -> None:
    first, second = (
        {"window_start": 0, "window_end": 9, "n": 1},
        {"window_start": 9, "window_end": 18, "n": 2},
    )
    assert applied(("a", first), ("a", second), ("a", {**first, "n": 3})) == [
        ("a", {**first, "n": 3}),
        ("a", second),
    ]
    assert applied(("a", first), ("a", second), by_window=False) == [("a", second)]
    assert sorted(applied(("a", 5), ("a", [6]), ("b", 7))) == [("a", [6]), ("b", 7)]


def test_keys_come_back_as_they_were() -> None:
    assert sorted(applied((("a", 1), {"n": 1}), (("a", 2), {"n": 2}))) == [
        (("a", 1), {"n": 1}),
        (("a", 2), {"n": 2}),
    ]


def test_a_retraction_removes_the_row_that_it_takes_back_and_no_other() -> None:
    nan = float("nan")
    assert applied(("a", {"n": 1}), ("a", retracted({"n": 1}))) == []
    assert applied(("a", {"n": nan}), ("a", retracted({"n": nan}))) == []
    assert applied(("a", {"n": 1}), ("a", {"n": 2}), ("a", retracted({"n": 1}))) == [
        ("a", {"n": 2})
    ]
    assert applied(("a", retracted({"n": 1})), ("a", {"n": 1})) == [("a", {"n": 1})]
    assert applied(("a", 5), ("a", retracted(5))) == []


def test_rows_have_their_decimals_and_those_beyond_64_bits_are_dead_letters(
    start: Any, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    fields = 'timestamp: ts, fields: {ts: int, who: str, worth: "decimal(18, 2)"}'
    file.write_text(file.read_text().replace("timestamp: ts", fields))
    run = start()
    run.harness.push("orders", [order("0.10", 1), order("0.20", 2), order("5", 3, "bob")])  # type: ignore[arg-type]
    run.harness.finish()
    assert run.sessions() == [("ann", 1, 0.3), ("bob", 3, 5)]
    assert run.totals() == [("ann", 0.3, 1), ("bob", 5, 1)]
    run = start()
    run.harness.push("orders", [order("9999999999999999.99", 1)] * 10)  # type: ignore[arg-type]
    run.harness.finish()
    assert run.sessions() == []
    reasons = [each["reason"] for each in run.harness.read("dead_letters")]
    assert "worth is 1e+19 units, beyond the 64 bits" in reasons[-1]
