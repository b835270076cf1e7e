"""Figures 6 to 9 of the paper on time-aware grouping, simulated: throughput and latency by
parallelism and over time.

Throughput is that of a sender as fast as records are taken; latency is that at a share of what all
instances can do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.grouping import CONTESTANTS, Outcome, Setup, run, speeds_of
from bench.panels import Line, Scale, panels
from bench.paths import HOUSE

FIGURES = HOUSE / "docs" / "pictures" / "skew_figures.svg"
SHAPES = ("mild", "unequal")
SIZES = (2, 4, 6, 8, 10, 12)
LIGHT, HEAVY = 0.4, 0.8
_MOST_MS = 20.0
_COLORS = {"pkg": "#8c6d1f", "dkg": "#b8c4c9", "dag": "#e09f3e", "nag": "#1f6f8b", "tag": "#9e2a2b"}
"""The groupings of the paper."""

Measure = Callable[[str, Setup], float]


def rate(name: str, setup: Setup) -> float:
    """Records a second, as fast as they are taken."""
    return run(name, setup).steady_per_s


def latency(load: float) -> Measure:
    """Of the mean latency in ms at such a load."""
    return lambda name, setup: run(name, replace(setup, load=load)).steady_latency_us / 1000


MEASURES: dict[str, Measure] = {
    "rate": rate,
    "latency-40": latency(LIGHT),
    "latency-80": latency(HEAVY),
}
"""Figure 6, and 7 at two loads."""
_BESIDE = {"rate": ("dag", "nag"), "latency-40": ("nag",), "latency-80": ("nag",)}
"""What the paper has beside TAG: DAG in throughput, NAG in latency."""


def by_parallelism(shape: str, records: int) -> dict[str, str]:
    """A table for each measure, with all groupings and sizes."""
    setups = _sizes(shape, records)
    head = [f"{size} instances" for size in SIZES]
    found = {}
    for title, measure in MEASURES.items():
        digits = 0 if title == "rate" else 1
        rows = {
            name: [f"{measure(name, setup):,.{digits}f}" for setup in setups]
            for name in CONTESTANTS
        }
        found[f"parallelism-{title}"] = _table(head, rows)
    return found


def ahead(shape: str, records: int) -> str:
    """TAG beside DAG and NAG at each size: times their rate, and times their latency; and where it
    is ahead."""
    setups, rows = _sizes(shape, records), {}
    for title, measure in MEASURES.items():
        for other in _BESIDE[title]:
            ratios = [measure("tag", setup) / measure(other, setup) for setup in setups]
            better = sum(each > 1 if title == "rate" else each < 1 for each in ratios)
            what = f"{title.replace('-', ' at ')}, of `{other}`"
            rows[what] = [*(f"{each:.2f}" for each in ratios), f"{better} of {len(SIZES)}"]
    return _table(
        [*(f"{size} instances" for size in SIZES), "TAG is ahead at"], rows, "TAG, times the"
    )


def over_time(shape: str, records: int) -> dict[str, str]:
    """Figures 8 and 9: every second window at 12 instances, one of which becomes four times slower
    at half time."""
    found = {}
    for title, per_window in (("time-rate", _rates), ("time-latency", _latencies)):
        series = {name: per_window(name, _slowed(shape, records)) for name in CONTESTANTS}
        rows = {
            name: [f"{each:,.{0 if title == 'time-rate' else 1}f}" for each in found_of[1::2]]
            for name, found_of in series.items()
        }
        found[title] = _table(
            [f"window {number + 1}" for number in range(1, len(next(iter(series.values()))), 2)],
            rows,
        )
    return found


def figures(records: int, shape: str = "mild") -> str:
    """All four as one picture, with the groupings of the paper."""
    setups = _sizes(shape, records)
    most = setups[-1].rate_per_us * 1e3
    low, high = MEASURES["rate"], MEASURES["latency-80"]
    across, windows = f"{SIZES[0]} to {SIZES[-1]} instances", "24 windows"
    lines: dict[str, Callable[[str], Sequence[float]]] = {
        "Throughput, thousand records/s": lambda name: [
            low(name, setup) / 1000 for setup in setups
        ],
        "Latency at a load of 80 %, ms": lambda name: [high(name, setup) for setup in setups],
        "Throughput over time, 12 instances": lambda name: [
            each / 1000 for each in _rates(name, _slowed(shape, records))
        ],
        "Latency over time, 12 instances": lambda name: _latencies(name, _slowed(shape, records)),
    }
    charts = {
        title: [Line(values(name), color) for name, color in _COLORS.items()]
        for title, values in lines.items()
    }
    scales = [Scale(most, most / 2, across), Scale(_MOST_MS, _MOST_MS / 2, across)]
    scales += [Scale(most, most / 2, windows), Scale(_MOST_MS, _MOST_MS / 2, windows)]
    title = "Throughput and latency of groupings, by parallelism and over time"
    return panels(title, charts, dict(zip(charts, scales, strict=True)), _COLORS)


def _sizes(shape: str, records: int) -> list[Setup]:
    return [Setup(speeds_of(shape, size), records=records) for size in SIZES]


def _slowed(shape: str, records: int) -> Setup:
    return Setup(speeds_of(shape, 12), records=records, slowed=11)


def _rates(name: str, setup: Setup) -> Sequence[float]:
    return run(name, setup).window_per_s


def _latencies(name: str, setup: Setup) -> Sequence[float]:
    found: Outcome = run(name, replace(setup, load=0.6))
    return [each / 1000 for each in found.window_latency_us]


def _table(head: Sequence[str], rows: dict[str, list[str]], corner: str = "grouping") -> str:
    lines = [f"| {corner} | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    return "\n".join(
        [*lines, *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items())]
    )
