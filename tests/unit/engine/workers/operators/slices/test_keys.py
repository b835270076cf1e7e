"""Keys that go idle: what is forgotten, and that the moment at which the store is cleared shows
nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.core.formats.store_layout import SLICE, SLICE_IDLE, SLICE_KEY
from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.operators.slices.test_computation import S, pipeline, stored

SLICES = "{every: 10s, keep: 10m, levels: [10s, 1m, 5m], ttl: 40s}"


def run(
    folder: Path, times: list[int], watermarks: dict[int, int], **options: Any
) -> PipelineHarness:
    """Records of one key at these seconds; behind some of them the watermark moves."""
    harness = PipelineHarness(pipeline(folder, SLICES, "{n: count}"), **options)
    for index, at in enumerate(times):
        harness.push("events", {"at": at * S, "ad": 7})
        if index in watermarks:
            harness.advance_watermark(watermarks[index] * S)
    return harness


@pytest.mark.parametrize("watermarks", [{}, {1: 60}, {1: 95}])
def test_a_key_that_comes_back_after_its_ttl_finds_nothing_of_before(
    tmp_path: Path, watermarks: dict[int, int]
) -> None:
    """Whether the store was cleared meanwhile, or not even the watermark has moved."""
    with run(tmp_path, [5, 20, 100, 105], watermarks) as harness:
        answer = harness.ask("clicks", 7, "2m", 110 * S)
        assert (answer.values, answer.covered_start_us) == ({"n": 2}, 70 * S)
        assert not answer.complete
        assert harness.ask("clicks", 7, "10s", 110 * S).values == {"n": 2}


def test_a_key_with_shorter_silences_keeps_everything(tmp_path: Path) -> None:
    with run(tmp_path, [5, 40, 75, 110], {3: 110}) as harness:
        answer = harness.ask("clicks", 7, "2m", 110 * S)
        assert (answer.values, answer.covered_start_us, answer.complete) == (
            {"n": 3},
            -10 * S,
            True,
        )


def test_slices_of_idle_keys_leave_the_store(tmp_path: Path) -> None:
    with run(tmp_path, [5, 20, 30], {}) as harness:
        assert (
            stored(harness, SLICE),
            stored(harness, SLICE_KEY),
            stored(harness, SLICE_IDLE),
        ) == (5, 1, 1)
        harness.advance_watermark(200 * S)
        assert (
            stored(harness, SLICE),
            stored(harness, SLICE_KEY),
            stored(harness, SLICE_IDLE),
        ) == (0, 0, 0)
        answer = harness.ask("clicks", 7, "1m", 60 * S)
        assert answer.values == {"n": 0}
        assert not answer.complete


def test_a_record_from_before_the_key_was_forgotten_is_late(tmp_path: Path) -> None:
    with run(tmp_path, [5, 100, 30], {}) as harness:
        assert harness.counters["late"] == 1
        assert harness.ask("clicks", 7, "2m", 110 * S).values == {"n": 1}


def test_crashes_change_nothing_of_it(tmp_path: Path) -> None:
    found = []
    for crash_every in (None, 11):
        with run(
            tmp_path, [5, 20, 100, 30, 105, 300], {1: 15, 4: 99, 5: 290}, crash_every=crash_every
        ) as harness:
            answer = harness.ask("clicks", 7, "5m", 310 * S)
            found.append(
                (answer.values, answer.covered_start_us, answer.complete, harness.counters["late"])
            )
    assert found[0] == found[1]
