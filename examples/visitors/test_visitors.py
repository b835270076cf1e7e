"""Unique visitors of the day so far: every minute is that of plain sets, in Shanghai's days, also
after a crash."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from millwheel.testing import PipelineHarness

MINUTE_US = 60_000_000
DAY_US = 86_400_000_000
MIDNIGHT_US = int(datetime(2026, 3, 1, 16, tzinfo=UTC).timestamp()) * 1_000_000  # 00:00 in Shanghai


def _visits() -> list[dict[str, Any]]:
    """Ten minutes before and after a midnight."""
    rng = random.Random(3)
    times = sorted(rng.randrange(-600_000, 600_000) for _ in range(1_500))
    return [
        {
            "device": f"device {rng.randrange(300)}",
            "channel": rng.choice("ab"),
            "ts": MIDNIGHT_US // 1000 + at,
        }
        for at in times
    ]


def test_every_minute_has_the_devices_of_the_day_so_far(tmp_path: Path) -> None:
    visits = _visits()
    params = {"input": str(tmp_path), "output": str(tmp_path / "out")}
    with PipelineHarness(str(Path(__file__).parent / "pipeline.yaml"), params=params) as harness:
        for number, visit in enumerate(visits):
            harness.push("visits", visit)
            if number == 700:
                harness.crash()
        harness.advance_watermark(MIDNIGHT_US + 12 * MINUTE_US)
        rows = harness.read("visitors_so_far")
    seen: dict[tuple[str, int], set[str]] = defaultdict(set)
    for visit in visits:
        at = visit["ts"] * 1000
        day_end = MIDNIGHT_US if at < MIDNIGHT_US else MIDNIGHT_US + 12 * MINUTE_US
        for end in range(at - at % MINUTE_US + MINUTE_US, day_end + 1, MINUTE_US):
            seen[visit["channel"], end].add(visit["device"])
    found = {(row["channel"], row["window_end"]): row["visitors"] for row in rows}
    assert found == {where: len(devices) for where, devices in seen.items()}
    assert {row["window_start"] for row in rows} == {MIDNIGHT_US - DAY_US, MIDNIGHT_US}
