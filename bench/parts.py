"""The parts of the benchmark, by letter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import dedup, dense, hops, latency, state, strength, throughput, watermarks
from bench.figures import Figure
from bench.rounds import Wanted
from bench.stats import Spread


@dataclass(frozen=True, slots=True)
class Beside:
    """What the report adds below a part's table: another table, and the rows of another plot. Both
    may be empty."""

    title: str
    table: Callable[[Sequence[Figure]], str]
    bars: Callable[[Sequence[Figure]], list[tuple[str, Spread]]] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """``title`` says what it measures, and about how long a round takes. ``metrics`` are the
    columns of its table, the first of them is drawn; ``compared`` is the one of which the table
    gives ratios; ``more`` are those of a second table, for what has other figures."""

    title: str
    run: Callable[[Wanted], list[Figure]]
    metrics: tuple[str, ...]
    compared: str = ""
    more: tuple[str, ...] = ()
    beside: Beside | None = None


_RATES = ("records_per_s", "cpu_s", "rss_mb")
PARTS = {
    "A": Part(
        "a tumbling minute per ad, files to files; 2 minutes a round",
        throughput.windows,
        _RATES,
        "records_per_s",
    ),
    "B": Part(
        "a Python callback per record with keyed state; 5 minutes a round",
        throughput.callback,
        _RATES,
        "records_per_s",
    ),
    "C": Part(
        "latency of two keyed stages at 5,000 records/s; 8 minutes a round",
        latency.latency,
        ("p50_ms", "p99_ms", "cpu_s", "rss_mb"),
        beside=Beside(
            "strong exactly-once, times as long as at least once", strength.table, strength.bars
        ),
    ),
    "D": Part(
        "state from 10 thousand to 10 million keys; 5 minutes a round",
        state.state,
        (
            "records_per_s",
            "commit_p99_ms",
            "snapshot_s",
            "recovery_s",
            "rss_mb",
            "disk_mb",
        ),
    ),
    "E": Part(
        "dense sliding windows, native and by key; 4 minutes a round",
        dense.dense,
        ("windows_per_record", "us_per_record"),
        beside=Beside("native windows against key windows", dense.table),
    ),
    "F": Part(
        "the watermark service under many key ranges; 40 seconds a round",
        watermarks.watermarks,
        ("all_ms", "one_ms", "one_p99_ms", "cpu_per_round_ms"),
    ),
    "G": Part(
        "the same input per worker on one worker and on two, and the price of a hop; 3 minutes a"
        " round",
        hops.scale,
        ("records_per_s", "cpu_us_per_record", "loopback_mb", "rss_mb"),
        beside=Beside("a hop to another worker", hops.table),
    ),
    "H": Part(
        "records with and without ids; 3 minutes a round",
        dedup.ids,
        _RATES,
        more=(
            "ids_per_s",
            "asked_exactly_percent",
            "false_positives_percent",
            "filters_mb_per_million",
            "grown_mb_per_million",
            "disk_mb_per_million",
        ),
    ),
}
