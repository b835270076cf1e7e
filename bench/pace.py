"""What the dial ``latency:`` costs and saves: part C, strong exactly-once, at 5,000 records/s,
under each setting.

    python -m bench pace [--settings greedy balanced 2ms 20ms] [--rounds 3] [--seconds 15]

Settings take turns. ``cores`` is the CPU of all our processes, and ``others`` what everything else
on the machine used during the run. The quantiles are of the time from a record's creation until its
result is visible. Cores and quantiles are without the first five seconds: in those, processes
start, which takes two to three seconds of CPU once. On a busy machine steps are fewer under any
setting, so a round counts only if others used at most ``--quiet`` cores in each of its runs. Prints
every run, then medians.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import psutil

from bench.contestants import Contestant, ours
from bench.latency import DIAL, RATE, measure
from bench.stats import spread

_SHOWN = ("cores", "others", "p50_ms", "p95_ms", "p99_ms")


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        prog="python -m bench pace", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--settings", nargs="+", default=["greedy", "balanced", "2ms", "20ms"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--quiet", type=float, default=0.3)
    arguments = parser.parse_args()
    run = partial(_run, arguments.seconds)
    found: dict[str, list[dict[str, float]]] = {setting: [] for setting in arguments.settings}
    for _ in range(arguments.rounds):
        for setting, runs in found.items():
            runs.append(run(setting))
            print(
                setting,
                {name: round(runs[-1][name], 2) for name in _SHOWN},
                file=sys.stderr,
                flush=True,
            )
    counts = quiet_rounds(
        [[each["others"] for each in runs] for runs in found.values()], arguments.quiet
    )
    if not counts:
        print(f"in every round others used more than {arguments.quiet} cores: there are no figures")
        return 1
    print(f"{len(counts)} of {arguments.rounds} rounds were quiet")
    print(f"| latency | {' | '.join(_SHOWN)} |", "|---" * (len(_SHOWN) + 1) + "|", sep="\n")
    for setting, runs in found.items():
        medians = (spread([runs[number][name] for number in counts]).median for name in _SHOWN)
        print(f"| {setting} | {' | '.join(f'{median:.2f}' for median in medians)} |")
    return 0


def quiet_rounds(others: Sequence[Sequence[float]], most: float) -> list[int]:
    """The rounds in which others used at most so many cores, whatever the setting; ``others`` by
    setting and round."""
    return [number for number, used in enumerate(zip(*others, strict=True)) if max(used) <= most]


def _busy_s() -> float:
    """CPU seconds that the machine has worked so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _run(seconds: int, setting: str) -> dict[str, float]:
    contestant = Contestant(
        "millwheel", ours("latency", params={**DIAL["strong"], "pace": setting})
    )
    before_s, began = _busy_s(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pace-") as folder:
        found = measure(
            contestant, {"rate": str(RATE), "count": str(RATE * seconds)}, seconds, Path(folder)
        )
    if not found.metrics:
        raise SystemExit(f"latency: {setting}: {found.error}")
    ours_s = found.metrics["cpu_s"]
    return {
        **found.metrics,
        "others": (_busy_s() - before_s - ours_s) / (time.monotonic() - began),
    }
