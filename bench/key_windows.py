"""Native sliding windows against key windows: windows made, state held, time spent. ``python -m
bench key_windows``

Both see the same records of one key, in order, with the watermark following. A *window made* is one
that was said (native) or a point at which the result changed (key). *State* is the largest encoded
state of the key while it ran. Prints one JSON line per figure and the table of docs/windows.md.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from millwheel.core.aggregates.aggregation import SingleAggregation
from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.machines.choice import make_machine
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MIN_TIME, duration_text, duration_us
from millwheel.core.windows.contract import Effects, Machine, Times, Windowing
from millwheel.core.windows.windows import Sliding
from millwheel.engine.workers.process import GC_THRESHOLDS

RECORDS = 2_000
MEAN_GAP_US = 500_000
SIZES = (("10s", "1s"), ("1m", "1s"), ("10m", "1s"), ("1h", "1s"), ("1h", "100ms"))
NATIVE_LIMIT = 8_000_000
"""Window updates beyond which native windows are not run, only counted."""


@dataclass(frozen=True)
class Figure:
    """One kind of window at one ratio of length to slide. ``None``: not run, too many windows."""

    length: str
    slide: str
    ratio: int
    kind: str
    windows: int
    state_bytes: int | None
    us_per_record: float | None


def records() -> list[tuple[int, int]]:
    """(value, timestamp): exponential gaps, two a second on average."""
    rng = random.Random(1)
    at, found = 0, []
    for i in range(RECORDS):
        at += int(rng.expovariate(1 / MEAN_GAP_US))
        found.append((i % 7, at))
    return found


def _size(state: dict[Any, Any]) -> int:
    return sum(
        len(msgspec.msgpack.encode(slot)) + len(msgspec.msgpack.encode(value))
        for slot, value in state.items()
    )


def _fire(
    machine: Machine, state: dict[Any, Any], queue: TimerQueue, watermark: int, effects: Effects
) -> None:
    while (due := queue.pop_due(watermark)) is not None:
        machine.on_timer(state, "k", due.tag, due.domain, due.at, Times(watermark, 0), effects)
        _note(effects, queue)


def _run(window: Sliding, records: list[tuple[int, int]]) -> tuple[int, int, float]:
    """Windows said, largest state in bytes, µs per record (without measuring the state)."""
    machine = make_machine(Windowing(window), SingleAggregation(make_aggregator("sum", {})))
    state: dict[Any, Any] = {}
    queue = TimerQueue(Domain.EVENT)
    said = largest = 0
    spent = 0.0
    watermark = MIN_TIME
    for i in range(0, len(records) + 50, 50):
        effects = Effects()
        started = time.process_time()
        if i < len(records):
            machine.on_records(state, "k", records[i : i + 50], Times(watermark, 0), effects)
        watermark = records[min(i + 49, len(records) - 1)][1] if i < len(records) else 2**62
        _note(effects, queue)
        spent += time.process_time() - started
        largest = max(largest, _size(state))
        started = time.process_time()
        _fire(machine, state, queue, watermark, effects)
        spent += time.process_time() - started
        said += len(effects.panes)
    return said, largest, spent / len(records) * 1e6


def _note(effects: Effects, queue: TimerQueue) -> None:
    for timer in effects.timers:
        if timer.at is None:
            queue.cancel("k", timer.tag)
        else:
            queue.set("k", timer.tag, timer.at)
    effects.timers.clear()


def native_count(window: Sliding, records: list[tuple[int, int]]) -> int:
    """Windows with records, counted without making them."""
    ends, last = 0, MIN_TIME
    for _, at in records:
        first_end = at + window.every - at % window.every
        last_end = first_end + window.size - window.every
        ends += (last_end - max(last, first_end - window.every)) // window.every
        last = last_end
    return ends


def figures() -> Iterator[Figure]:
    """From a ratio of 10 to 36,000, with the garbage collector set as workers set it: else a look
    at all imported modules would be counted among the windows."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        given = records()
        for length, slide in SIZES:
            ratio = duration_us(length) // duration_us(slide)
            native = Sliding(length, slide)
            if ratio * RECORDS <= NATIVE_LIMIT:
                yield Figure(length, slide, ratio, "native", *_run(native, given))
            else:
                windows = native_count(native, given)
                yield Figure(length, slide, ratio, "native", windows, None, None)
            by_key = _run(Sliding(length, slide, changes=True), given)
            yield Figure(length, slide, ratio, "key", *by_key)
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def table(found: list[Figure]) -> str:
    """The figures as Markdown, one row per ratio."""
    lines = [
        (
            "| length | slide | ratio | windows: native | key | state, bytes: native | key | µs per"
            " record: native | key |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for native, key in zip(found[::2], found[1::2], strict=True):
        lines.append(
            f"| {native.length} | {native.slide} | {native.ratio:,} | {native.windows:,} |"
            f" {key.windows:,} | {_shown(native.state_bytes)} | {_shown(key.state_bytes)} |"
            f" {_shown(native.us_per_record)} | {_shown(key.us_per_record)} |"
        )
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "not run" if value is None else f"{value:,.0f}"


def main() -> int:
    """Print each figure as it is made, and the table."""
    collected = []
    for figure in figures():
        collected.append(figure)
        print(json.dumps(asdict(figure)), flush=True)
    print(table(collected))
    print(
        duration_text(MEAN_GAP_US),
        "between records on average,",
        RECORDS,
        "records",
        file=sys.stderr,
    )
    return 0
