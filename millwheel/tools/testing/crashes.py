"""Checks that a pipeline's results survive crashes: one run without any, then one run for each
point where a crash may happen."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.tools.testing.pipeline_harness import PipelineHarness
from millwheel.tools.testing.rewiring import spec_of

Story = Callable[[PipelineHarness], object]
_SHOWN = 3  # records of a difference that are shown


def assert_survives_crashes(
    pipeline: str | os.PathLike[str] | PipelineSpec | Any,
    story: Story | Mapping[str, Sequence[Any]],
    *,
    params: Mapping[str, Any] | None = None,
    every: int = 1,
    **options: Any,
) -> int:
    """Run ``story`` without a crash, then again and again with one crash: after the first unit of
    work, after the second (after each ``every``-th), … Returns the number of runs with a crash.

    ``story`` is a function of a harness, or the records of each stream, which are pushed one by
    one; then all input is finished. In every run, all streams must have the same records and all
    computations the same state. Otherwise AssertionError reports the difference. Only the order of
    records of different keys may differ. ``options`` go to PipelineHarness.
    """
    if every < 1:
        raise ValueError(f"every={every}: it must be at least 1")
    spec = spec_of(pipeline, params)
    play = story if callable(story) else lambda harness: push_all(harness, story)
    expected, units = _outcome(spec, play, options)
    units_tried = range(1, units + 1, every)
    for unit in units_tried:
        got, _ = _outcome(spec, play, {**options, "crash_at": unit})
        for what in expected:
            _compare(
                f"after a crash at unit {unit} of {units}, {what} differs",
                got[what],
                expected[what],
            )
    return len(units_tried)


def push_all(harness: PipelineHarness, records: Mapping[str, Sequence[Any]]) -> None:
    """Push the records of each stream, one by one, and finish."""
    for stream, values in records.items():
        for value in values:
            harness.push(stream, value)
    harness.finish()


def _outcome(
    spec: PipelineSpec, play: Story, options: Mapping[str, Any]
) -> tuple[dict[str, Counter[str]], int]:
    with PipelineHarness(spec, **options) as harness:
        play(harness)
        outcome: dict[str, Counter[str]] = {}
        for stream in (sink.stream for sink in harness.spec.sinks):
            outcome[f"stream {stream}"] = Counter(
                _text(record) for record in harness.records(stream)
            )
        for computation, entries in harness.remembered().items():
            outcome[f"the state of {computation}"] = Counter(
                f"{store_key!r}: {data!r}" for store_key, data in entries.items()
            )
        return outcome, harness.units


def _text(record: Any) -> str:
    value = msgspec.json.encode(record.value, enc_hook=repr, order="deterministic").decode()
    return f"key {record.key!r} at {record.timestamp}: {value}"


def _compare(what: str, got: Counter[str], expected: Counter[str]) -> None:
    if got == expected:
        return
    missing, extra = list((expected - got).elements()), list((got - expected).elements())
    raise AssertionError(
        f"{what} from a run without one. Missing ({len(missing)}): {missing[:_SHOWN]}; "
        f"too many ({len(extra)}): {extra[:_SHOWN]}"
    )
