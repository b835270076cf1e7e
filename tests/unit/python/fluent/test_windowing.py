"""Windows and triggers of a pipeline in Python."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pytest

import millwheel
from millwheel import (
    AfterAny,
    AfterCount,
    FileSource,
    Global,
    Pipeline,
    Repeat,
    Trigger,
)
from millwheel.connect.python_objects import load_object
from millwheel.core.machines.specs import machine_from_spec
from millwheel.core.windows.kinds import WINDOW_KINDS
from millwheel.core.windows.trees import FORMS
from tests.unit.python.fluent.test_draft import small


class EveryOther(Trigger):
    def ready(self, state: Any, moment: Any) -> bool:
        return bool(state >= 2)

    def add(self, state: Any, records: int, size: int, moment: Any) -> Any:
        return state + records


class Odd:
    def __init__(self, size: int) -> None:
        self.size = size

    def assign(self, timestamp: int) -> list[tuple[int, int]]:
        return [(timestamp, timestamp + self.size)]


def test_windows_and_triggers_of_ones_own_are_objects() -> None:
    pipeline, hits = small()
    hits.window(Odd(7)).aggregate({"n": "count"}, name="own_window")
    every_other = Repeat(EveryOther())
    hits.window(Global()).trigger(AfterAny(every_other, AfterCount(9))).aggregate(
        {"n": "count"}, name="own_trigger"
    )
    window, trigger = pipeline.spec().computations

    def load(name: str) -> Any:
        return load_object(name, "/nowhere")

    machine = machine_from_spec(window, lambda text: None, load)
    assert machine.windowing.window.assign(3) == [(3, 10)]  # type: ignore[attr-defined]
    machine = machine_from_spec(trigger, lambda text: None, load)
    assert machine.windowing.trigger == AfterAny(every_other, AfterCount(9))  # type: ignore[attr-defined]


def test_durations_are_text_or_timedeltas() -> None:
    pipeline = Pipeline("p")
    pipeline.read(
        "a",
        FileSource("x", "jsonl"),
        timestamp="t",
        max_delay=timedelta(minutes=2),
        idle_after="3s",
    )
    found = pipeline.spec().streams[0]
    assert (found.max_delay_us, found.idle_after_us) == (120_000_000, 3_000_000)


@pytest.mark.parametrize("word", [*WINDOW_KINDS])
def test_every_window_of_a_pipeline_file_is_a_class_with_its_options(word: str) -> None:
    kind = WINDOW_KINDS[word]
    public = getattr(millwheel, kind.make.__name__)
    assert public is kind.make
    arguments = inspect.signature(public).parameters
    assert [each.attribute for each in kind.options if each.attribute not in arguments] == []


@pytest.mark.parametrize("word", [*FORMS])
def test_every_trigger_of_a_pipeline_file_is_a_class(word: str) -> None:
    kind = FORMS[word].kind
    assert getattr(millwheel, kind.__name__) is kind
