"""A run is followed from its root. With a run: tests/slow/test_queries.py."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from millwheel.control.roots.root import RunInfo
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.tools.gateway import run_follower
from millwheel.tools.gateway.run_follower import FollowedRun
from tests.unit.engine.queries.test_named_queries import Changes
from tests.unit.language.spec.test_pipelines import PIPELINE


class Coordination:
    """Tells a table and no worker, and is lost when a test says so."""

    def __init__(self) -> None:
        self.lost = threading.Semaphore(0)

    def on_lost(self, lost: object) -> None:
        self.end = lost

    def watch_tables(self, changed: object) -> None:
        changed(RangeTable("clicks", (ShardEntry("clicks-0", tile(1)[0], "w0", 1),), 1))  # type: ignore[operator,arg-type]

    def watch_members(self, role: str, changed: object) -> None:
        changed({"w0": b'{"queries": "h:1"}'})  # type: ignore[operator]
        if role == "queries":
            self.lost.release()

    def __enter__(self) -> Coordination:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_it_follows_again_when_the_run_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    coordination = Coordination()
    monkeypatch.setattr(run_follower, "attach", lambda root: RunInfo("asked", "1", "local:x", 1))
    monkeypatch.setattr(run_follower, "connected", lambda run: coordination)
    monkeypatch.setattr(run_follower, "_AGAIN_S", 0.001)
    run = FollowedRun(tmp_path, Changes(), lambda root: load_pipeline(tmp_path / "p.yaml"))
    assert set(run.catalog.named.formulas) == {"cpc"}
    run.start()
    for _ in range(2):
        assert coordination.lost.acquire(timeout=20)
        assert run.owners.ready() == ""
        coordination.end()  # type: ignore[operator]
    run.stop()


def test_what_nobody_expected_does_not_end_the_following(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    coordination, tries = Coordination(), iter([ValueError("odd"), None])

    def attach(root: Path) -> RunInfo:
        if (error := next(tries, None)) is not None:
            raise error
        return RunInfo("asked", "1", "local:x", 1)

    monkeypatch.setattr(run_follower, "attach", attach)
    monkeypatch.setattr(run_follower, "connected", lambda run: coordination)
    monkeypatch.setattr(run_follower, "_AGAIN_S", 0.001)
    run = FollowedRun(tmp_path, Changes(), lambda root: load_pipeline(tmp_path / "p.yaml"))
    run.start()
    assert coordination.lost.acquire(timeout=20)
    run.stop()
