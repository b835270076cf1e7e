from __future__ import annotations

import threading
from pathlib import Path
from textwrap import dedent

import msgspec

from millwheel.language.spec.pipelines import load_pipeline
from millwheel.tools.ui.documents import LiveRun
from millwheel.tools.ui.page_state import Shown
from tests.unit.tools.ui.test_layout import TEXT

LIVE = LiveRun("drawn", "/r", "running", 1)


def shown(tmp_path: Path) -> Shown:
    (tmp_path / "p.yaml").write_text(dedent(TEXT))
    return Shown(load_pipeline(tmp_path / "p.yaml"), LIVE)


def test_who_waits_is_woken_by_news(tmp_path: Path) -> None:
    found = shown(tmp_path)
    assert found.after(0, 0.0) == 0
    news = threading.Timer(0.01, found.show, [msgspec.structs.replace(LIVE, state="stopped")])
    news.start()
    assert found.after(0, 30.0) == 1
    assert found.live.state == "stopped"
    news.join()


def test_a_run_that_begins_again_keeps_its_time_line(tmp_path: Path) -> None:
    found = shown(tmp_path)
    found.timeline.workers({"w0": 0}, 1)
    found.timeline.add("run", "it began", 1)
    before = found.drawing
    found.begin(found.spec)
    assert [event.words for event in found.timeline.events] == ["it began"]
    assert found.drawing is not before
    found.timeline.workers({"w9": 0}, 2)
    assert len(found.timeline.events) == 1  # the workers of the run before have not died


def test_a_state_that_is_new_enough_is_waited_for(tmp_path: Path) -> None:
    found = shown(tmp_path)
    assert found.since(1, 0.0)
    assert not found.since(2, 0.0)
    news = threading.Timer(0.01, found.show, [msgspec.structs.replace(LIVE, at_ms=2)])
    news.start()
    assert found.since(2, 30.0)
    news.join()
