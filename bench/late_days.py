"""What two days of lateness take: state, time and corrections. ``python -m bench late_days``

    python -m bench late_days [--records 200000] [--keys 50]

Counts by key and minute over four days of event time. One record in a hundred comes up to two days
late, evenly; the others are in order, and the watermark follows them. All run in memory, by the
engine's own state and commits, with ``allowed_lateness`` of nothing, an hour, a day and two days.
State is what is stored, at its largest of eight looks; time is that of the CPU. With two days the
last row of each key and minute must be the count of all its records. Prints the table of
docs/windows.md.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from millwheel.core.model.times import duration_us
from millwheel.testing import PipelineHarness

LATENESSES = ("0s", "1h", "1d", "2d")
DAY_US, MINUTE_US = duration_us("1d"), duration_us("1m")
DAYS, LATE_DAYS, LATE_SHARE = 4, 2, 0.01
_BUNDLE, _LOOKS = 500, 8

Row = tuple[int, int, bool]
"""Time (µs), key, and whether it is behind the others; in the order of arrival."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One run. ``windows`` are open ones at the largest look, ``corrections`` rows that replace an
    earlier one; ``equal`` is about rows with two days only."""

    lateness: str
    windows: int
    state_bytes: int
    us_per_record: float
    dropped: int
    corrections: int
    equal: bool | None


def records(count: int, keys: int) -> list[Row]:
    """The input. A late record arrives when those of its delay later do."""
    rng = random.Random(1)
    found: list[tuple[float, int, int, bool]] = []
    for number in range(count):
        at = number * DAYS * DAY_US // count
        late = rng.random() < LATE_SHARE
        arrival = at + late * rng.uniform(MINUTE_US, LATE_DAYS * DAY_US)
        found.append((arrival, at, rng.randrange(keys), late))
    return [(at, key, late) for _, at, key, late in sorted(found)]


def figure(lateness: str, rows: Sequence[Row]) -> Figure:
    """One run."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        path.write_text(json.dumps(_document(lateness)))
        with PipelineHarness(path, shards=1, workers=1) as harness:
            spent, largest, windows = _push(harness, rows)
            given = harness.read("minutes")
            dropped = harness.counters.get("late", 0)
    last = {(row["key"], row["window_start"]): row["n"] for row in given}
    right = Counter((key, at - at % MINUTE_US) for at, key, _ in rows)
    equal = last == right if duration_us(lateness) >= LATE_DAYS * DAY_US else None
    cost = spent / len(rows) * 1e6
    return Figure(lateness, windows, largest, cost, dropped, len(given) - len(last), equal)


def _push(harness: PipelineHarness, rows: Sequence[Row]) -> tuple[float, int, int]:
    """Seconds of CPU without the looks, the most bytes stored, and the windows open then."""
    spent, largest, windows = 0.0, 0, 0
    look = max(1, len(rows) // _BUNDLE // _LOOKS)
    for number, begin in enumerate(range(0, len(rows), _BUNDLE), 1):
        some = rows[begin : begin + _BUNDLE]
        began = time.process_time()
        harness.push("hits", [{"key": key, "ts": at} for at, key, _ in some])
        harness.advance_watermark(max((at for at, _, late in some if not late), default=0))
        spent += time.process_time() - began
        if number % look == 0:
            stored = harness.remembered()["counts"]
            size = sum(len(name) + len(data) for name, data in stored.items())
            if size > largest:
                largest = size
                windows = sum(
                    len(harness.open_windows("counts", key)) for key in {key for _, key, _ in rows}
                )
    began = time.process_time()
    harness.finish()
    return spent + time.process_time() - began, largest, windows


def _document(lateness: str) -> dict[str, Any]:
    return {
        "pipeline": "late_days",
        "streams": {"hits": {"source": "injection", "timestamp": {"field": "ts", "unit": "us"}}},
        "computations": {
            "counts": {
                "input": {"hits": {"key": "key"}},
                "window": {"tumbling": "1m"},
                "aggregate": {"n": "count"},
                "allowed_lateness": lateness,
                "accumulation": "accumulating",
                "output": "minutes",
            }
        },
        "sinks": {"minutes": "stdout"},
    }


def table(found: Sequence[Figure]) -> str:
    """The figures as Markdown."""
    lines = [
        "| `allowed_lateness` | open windows | state, bytes | µs per record | dropped "
        "| corrections |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.lateness} | {each.windows:,} | {each.state_bytes:,} | {each.us_per_record:.0f} "
        f"| {each.dropped:,} | {each.corrections:,} |"
        for each in found
    ]
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench late_days", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=50)
    arguments = parser.parse_args()
    rows = records(arguments.records, arguments.keys)
    found = [figure(lateness, rows) for lateness in LATENESSES]
    print(table(found))
    return int(any(each.equal is False for each in found))


if __name__ == "__main__":
    sys.exit(main())
