"""Expired slices leave the store as the watermark passes, with the bundle after the one that noted it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.formats.store_layout import SLICE
from millwheel.queries.model import QueryError
from millwheel.testing import PipelineHarness
from tests.unit.workers.slices.test_keys import stored
from tests.unit.workers.slices.test_sliced import S, pipeline


def test_slices_leave_the_store_a_while_after_they_can_not_be_asked_any_more(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path, aggregate="{n: count}"), shards=1) as harness:
        for at in (5, 15, 400):
            harness.push("events", {"at": at * S, "ad": 1})
        assert stored(harness, SLICE) == 7
        harness.advance_watermark(609 * S)
        assert harness.ask("clicks", 1, "10s", 10 * S).values == {"n": 1}
        harness.advance_watermark(610 * S)
        with pytest.raises(QueryError) as caught:
            harness.ask("clicks", 1, "10s", 10 * S)
        assert caught.value.code == "beyond_keep"
        assert harness.ask("clicks", 1, "10s", 20 * S).values == {"n": 1}
        harness.advance_watermark(930 * S)
        harness.advance_watermark(950 * S)
        assert stored(harness, SLICE) == 3


def test_a_record_of_an_expired_slice_is_late_and_one_of_the_next_slice_counts(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path, aggregate="{n: count}")) as harness:
        harness.push("events", {"at": 500 * S, "ad": 1})
        harness.advance_watermark(640 * S)
        harness.push("events", {"at": 39 * S, "ad": 1})
        assert harness.counters["late"] == 1
        harness.push("events", {"at": 40 * S, "ad": 1})
        assert harness.counters["late"] == 1
        assert harness.ask("clicks", 1, "10s", 50 * S).values == {"n": 1}
