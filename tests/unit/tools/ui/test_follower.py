"""A run is followed from its root. With a run, and in a browser: tests/slow/test_ui.py."""

from __future__ import annotations

import threading
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from millwheel.control.roots.root import RunInfo
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import UnavailableError
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.tools.ui import follower
from millwheel.tools.ui.follower import FollowedPage
from tests.unit.tools.ui.test_layout import TEXT

RUN = RunInfo("drawn", "1", "local:x", 7)


class Coordination:
    """Tells of a worker, its death, and the new owner of its shard."""

    def on_lost(self, lost: object) -> None: ...

    def watch_tables(self, changed: Any) -> None:
        for owner in ("w0-a", "w1-b"):
            changed(RangeTable("count", (ShardEntry("count-0", tile(1)[0], owner, 1),), 1))

    def watch_members(self, role: str, changed: Any) -> None:
        if role == "workers":
            changed({"w0-a": b'{"slot": 0, "pid": 1}', "w1-b": b'{"slot": 1, "pid": 2}'})
        else:
            changed({})

    def __enter__(self) -> Coordination:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FollowedPage:
    (tmp_path / "p.yaml").write_text(dedent(TEXT))
    monkeypatch.setattr(follower, "attach", lambda root: RUN)
    monkeypatch.setattr(follower, "connected", lambda run: Coordination())
    monkeypatch.setattr(follower, "LOOK_S", 0.0)
    return FollowedPage(tmp_path, lambda root: load_pipeline(tmp_path / "p.yaml"))


def test_a_run_is_followed_until_it_ends(
    page: FollowedPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([RUN, RUN, None])
    monkeypatch.setattr(follower, "read_run", lambda root: next(left))
    monkeypatch.setattr(follower, "is_driven", lambda root: True)
    page._follow()
    words = [event.words for event in page.shown.timeline.events]
    assert words == [
        "the driver is process 7",
        "1 shard moved from w0-a to w1-b",
        "the run has ended",
    ]
    assert page.shown.version >= 4


def test_a_run_that_does_not_answer_is_told_and_its_figures_stay(
    page: FollowedPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: Any) -> Any:
        raise UnavailableError("No injector leads at the moment")

    monkeypatch.setattr(follower, "ask", asked)
    before = page.shown.live
    page._ask(None, "drawn")  # type: ignore[arg-type]
    assert page.shown.live.problem == "No injector leads at the moment"
    assert page.shown.live.records_in == before.records_in


@pytest.mark.parametrize(("done", "state"), [(None, "stopped"), ({}, "complete")])
def test_a_run_that_is_over_is_shown_as_it_ended(
    page: FollowedPage, monkeypatch: pytest.MonkeyPatch, done: Any, state: str
) -> None:
    monkeypatch.setattr(follower, "is_driven", lambda root: False)
    monkeypatch.setattr(follower, "read_completed", lambda root: done)
    page._rest("the run could not be followed")
    assert (page.shown.live.state, page.shown.live.problem) == (state, "")
    version = page.shown.version
    page._rest("")
    assert page.shown.version == version  # said once


def test_after_a_silence_the_first_answer_is_new(
    page: FollowedPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOOK_S", 3600.0)  # so only the look itself can cause a poll
    monkeypatch.setattr(follower, "read_run", lambda root: RUN)
    monkeypatch.setattr(follower, "is_driven", lambda root: True)
    polls: list[int] = []

    def polled(graph: Any, pipeline: str) -> None:
        polls.append(1)
        page.shown.show(
            msgspec.structs.replace(
                page.shown.live, at_ms=follower._now_ms(), records_in=len(polls)
            )
        )

    monkeypatch.setattr(page, "_ask", polled)
    page.shown.show(msgspec.structs.replace(page.shown.live, at_ms=1))
    thread = threading.Thread(target=page._follow)
    thread.start()
    while not page._following:
        thread.join(0.001)
    page.look()
    assert page.live().records_in == 1
    page.look()
    assert page.live().records_in == 1, "it is new enough: nothing is waited for"
    page.stop()
    thread.join()


def test_an_answer_that_stays_old_gives_its_age(
    page: FollowedPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_PATIENCE_S", 0.0)
    page.shown.show(msgspec.structs.replace(page.shown.live, at_ms=follower._now_ms() - 20_000))
    assert page.live().problem == "", "a run that is over has no newer state"
    page._following = True
    assert page.live().problem == "The run has not answered for 20 s"
