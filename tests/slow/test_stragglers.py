from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from tests.slow.test_run import ads, ads_events, assert_right

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("launcher", ["processes", pytest.param("spark", marks=pytest.mark.long)])
def test_workers_that_are_paused_for_ever_are_replaced_and_no_process_is_left(
    tmp_path: Path, launcher: str
) -> None:
    events = ads_events(tmp_path, 300_000)
    run = ads(tmp_path, events, launcher).start().until_reading(timeout_s=90)
    paused = run.processes("millwheel.engine.workers")
    assert len(paused) == 2
    for worker in paused:
        worker.send_signal(signal.SIGSTOP)  # nobody goes on unless they are replaced
    family = psutil.Process(run.process.pid).children(recursive=True)
    assert_right(run.wait(), events)
    assert "has been declared dead, but it still runs" in run.said
    assert not [process for process in [*paused, *family] if lives(process)]


def lives(process: psutil.Process) -> bool:
    """True unless it has ended. One that has, and whose new parent has not looked yet, is a
    zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
