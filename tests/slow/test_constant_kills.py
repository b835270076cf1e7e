"""Work goes on while workers are killed faster than they settle; docs/failures.md has the figures of a longer run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow.runs import ads_events
from tests.slow.test_run import ads, assert_right

pytestmark = pytest.mark.slow

EVERY_S = 1.5
LIMIT_S = 400
"""Without kills it takes about ten seconds on a quiet machine of two cores."""


def test_a_run_ends_with_the_right_rows_though_a_worker_is_killed_every_second_and_a_half(tmp_path: Path) -> None:
    events = ads_events(tmp_path, 150_000)
    run = ads(tmp_path, events).start().until_reading()
    killed = run.kill_at_random(
        ("millwheel.workers",), seed=11, times=round(LIMIT_S / EVERY_S), pause_s=(EVERY_S, EVERY_S)
    )
    run.wait(60)
    assert killed["millwheel.workers"] >= 3, run.said
    assert_right(run, events)
