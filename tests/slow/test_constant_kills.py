"""Work goes on while workers are killed faster than they settle; docs/failures.md has the figures
of a longer run: ``CONSTANT_KILLS_RECORDS=3000000 python -m pytest -s
tests/slow/test_constant_kills.py``."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.slow.runs import ads_events
from tests.slow.test_run import ads, assert_right

pytestmark = [pytest.mark.slow, pytest.mark.long]

RECORDS = int(os.environ.get("CONSTANT_KILLS_RECORDS", "1000000"))
EVERY_S = 1.5
LIMIT_S = max(250, RECORDS // 4_000)
"""Without kills a million take some eight seconds on two quiet cores; half of them would be over
after two kills."""


def test_a_run_ends_with_the_right_rows_though_a_worker_is_killed_every_second_and_a_half(
    tmp_path: Path,
) -> None:
    events = ads_events(tmp_path, RECORDS)
    run, started_s = ads(tmp_path, events).start().until_reading(), time.monotonic()
    killed = run.kill_at_random(
        ("millwheel.engine.workers",),
        seed=11,
        times=round(LIMIT_S / EVERY_S),
        pause_s=(EVERY_S, EVERY_S),
    )
    run.wait(60)
    print(
        f"{RECORDS:,} records, {time.monotonic() - started_s:.0f} s,"
        f" {killed['millwheel.engine.workers']} kills"
    )
    assert killed["millwheel.engine.workers"] >= 3, run.said
    assert_right(run, events)
