from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

from millwheel.workers import events as ev
from millwheel.workers.loop.pace import StepPace
from millwheel.workers.process import WorkerProcess, clean_scratch


def test_the_scratch_folder_of_a_life_is_there_whatever_was_before(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "slot-1"
    assert clean_scratch(str(folder)) == str(folder)
    assert clean_scratch(str(folder)) == str(folder)
    assert folder.is_dir()


class Outside:
    """Runtime, transport, clock and figures at once. It is asked to stop by the first event, and counts sleeps."""

    def __init__(self) -> None:
        self.steps: list[list[object]] = []
        self.slept = 0

    def step(self, events: list[object]) -> int:
        self.steps.append(events)
        return 1_000_000

    def finished(self) -> bool:
        return any(isinstance(event, ev.StopAsked) for events in self.steps for event in events)

    def take(self, _wait_us: int, _most: int) -> list[object]:
        self.slept += 1
        return [ev.StopAsked()]

    def now_us(self) -> int:
        return 0

    def monotonic_us(self) -> int:
        return 0

    def begins(self) -> None: ...

    def ended(self) -> None: ...


def test_a_worker_that_is_done_ends_at_once_and_does_not_sleep_until_its_next_report() -> None:
    outside = Outside()
    process: Any = WorkerProcess.__new__(WorkerProcess)
    process._runtime = process._transport = process._clock = process._observed = outside
    process._pace = StepPace()
    process._loop()
    assert (len(outside.steps), outside.slept) == (2, 1)


def test_a_worker_rests_after_a_step_before_it_takes_what_has_come() -> None:
    outside = Outside()
    process: Any = WorkerProcess.__new__(WorkerProcess)
    process._runtime = process._transport = process._clock = process._observed = outside
    process._pace = StepPace(50_000)
    began = monotonic()
    process._loop()
    assert monotonic() - began >= 0.05
