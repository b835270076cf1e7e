from __future__ import annotations

import socket
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from millwheel.engine.workers import events as ev
from millwheel.engine.workers.loop.pace import StepPace
from millwheel.engine.workers.machine import MachineFacts, machine_of
from millwheel.engine.workers.process import WorkerProcess, clean_scratch
from millwheel.errors import SetupError


def test_the_scratch_folder_of_a_life_is_there_whatever_was_before(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "slot-1"
    assert clean_scratch(str(folder)) == str(folder)
    assert clean_scratch(str(folder)) == str(folder)
    assert folder.is_dir()


class Outside:
    """Runtime, transport, clock and figures at once. It is asked to stop by the first event, and
    counts sleeps."""

    stepped_at_us = 0

    def __init__(self, wakes_at_us: int = 1_000_000) -> None:
        self.steps: list[list[object]] = []
        self.slept = 0
        self.wakes_at_us = wakes_at_us

    def step(self, events: list[object]) -> int:
        self.steps.append(events)
        return self.wakes_at_us

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


def rested_s(outside: Outside) -> float:
    process: Any = WorkerProcess.__new__(WorkerProcess)
    process._runtime = process._transport = process._clock = process._observed = outside
    process._pace = StepPace(50_000)
    began = monotonic()
    process._loop()
    return monotonic() - began


def test_a_worker_rests_after_a_step_before_it_takes_input_or_looks_for_due_work() -> None:
    assert rested_s(Outside()) >= 0.05
    assert rested_s(Outside(wakes_at_us=1_000)) >= 0.05


def test_a_worker_does_not_rest_while_a_step_has_left_work() -> None:
    process: Any = WorkerProcess.__new__(WorkerProcess)
    process._runtime = process._transport = process._clock = process._observed = Outside(
        wakes_at_us=0
    )
    process._pace = None  # it is not asked
    process._loop()


# machine.py: The variables by which a machine describes itself.


def test_a_machine_that_says_nothing_has_its_own_name_no_rack_and_weight_one() -> None:
    assert (
        machine_of({})
        == machine_of({"MILLWHEEL_HOST": "", "MILLWHEEL_RACK": ""})
        == MachineFacts(socket.gethostname())
    )


def test_host_rack_and_weight_are_those_of_the_environment() -> None:
    given = {"MILLWHEEL_HOST": "node-7.eu", "MILLWHEEL_RACK": "eu-west-1a", "MILLWHEEL_WEIGHT": "3"}
    assert machine_of(given) == MachineFacts("node-7.eu", "eu-west-1a", 3)


@pytest.mark.parametrize("text", ["0", "101", "-1", "2.5", "", "two", "٣٣٣"])
def test_a_weight_is_a_whole_number(text: str) -> None:
    with pytest.raises(
        SetupError, match=r"MILLWHEEL_WEIGHT is .*; a weight is a whole number from 1 to 100"
    ):
        machine_of({"MILLWHEEL_WEIGHT": text})


@pytest.mark.parametrize("text", ["a b", "a\n", ".a", "ü", "x" * 254])
@pytest.mark.parametrize("variable", ["MILLWHEEL_HOST", "MILLWHEEL_RACK"])
def test_a_label_is_a_short_name(variable: str, text: str) -> None:
    with pytest.raises(SetupError, match=rf"{variable} is .*; it is a name of at most 253 letters"):
        machine_of({variable: text})
