"""Parts A and B: a million ad events from files to files, as fast as it goes. Expected: 1 minute a
round for ours, the limits and bytewax; 5 with all peers.

Two worker processes, exactly-once; see ``contest.py`` for the clock and ``contestants.py`` for what
peers promise.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.checks import Check, check_outliers, check_windows
from bench.contest import execute
from bench.contestants import BYTEWAX, FLINK, SPARK, Contestant, Job, bytewax, local, ours
from bench.figures import Figure
from bench.inputs import Input, ads
from bench.rounds import Entry, Measured, Wanted, alternate

RECORDS, QUICK_RECORDS, FILES = 1_000_000, 50_000, 4
TIMEOUT_S = 300.0

WINDOWS = (
    Contestant("millwheel", ours("windows"), ("jsonl", "parquet")),
    Contestant("bytewax", bytewax("bytewax_windows.py", 1)),
    Contestant("bytewax, 2 processes", bytewax("bytewax_windows.py", 2)),
    Contestant(
        "spark",
        local("spark_streaming.py", "windows", python=SPARK),
        ("jsonl", "parquet"),
        ended=True,
    ),
    Contestant("duckdb, batch", local("duckdb_windows.py"), ("jsonl", "parquet"), limit=True),
    Contestant("python loop", local("python_loop.py", "windows", python=BYTEWAX), limit=True),
)
CALLBACK = (
    Contestant("millwheel", ours("callback"), ("jsonl", "parquet")),
    Contestant("bytewax", bytewax("bytewax_callback.py", 1)),
    Contestant("bytewax, 2 processes", bytewax("bytewax_callback.py", 2)),
    Contestant("spark, row", local("spark_streaming.py", "row", python=SPARK)),
    Contestant("spark, pandas", local("spark_streaming.py", "pandas", python=SPARK)),
    Contestant("flink, thread mode", local("flink_callback.py", "thread", python=FLINK)),
    Contestant("flink, process mode", local("flink_callback.py", "process", python=FLINK)),
    Contestant("python loop", local("python_loop.py", "callback", python=BYTEWAX), limit=True),
)


def windows(wanted: Wanted) -> list[Figure]:
    """Part A."""
    return _part("A", WINDOWS, wanted)


def callback(wanted: Wanted) -> list[Figure]:
    """Part B."""
    return _part("B", CALLBACK, wanted)


def _part(part: str, contestants: tuple[Contestant, ...], wanted: Wanted) -> list[Figure]:
    load = ads(QUICK_RECORDS if wanted.quick else RECORDS, FILES)
    entries = [
        Entry(contestant.name, form, partial(measure, part, contestant, form, load))
        for form in ("jsonl", "parquet")
        for contestant in contestants
        if form in contestant.forms
    ]
    return alternate(part, entries, {"records": load.records, "files": load.files}, wanted)


def measure(part: str, contestant: Contestant, form: str, load: Input, folder: Path) -> Measured:
    """One run, checked."""
    source = load.ended(form) if contestant.ended else load.of(form)
    job = Job(folder, source, form, TIMEOUT_S)
    outcome = execute(contestant.start(job))
    if outcome.error:
        return Measured({}, None, outcome.error)
    if outcome.seconds is None:
        return Measured({}, False, f"no results: {outcome.tail}")
    check = _check(part, load, form, job.output)
    metrics = {
        "records_per_s": load.records / outcome.seconds,
        "seconds": outcome.seconds,
        "cpu_s": outcome.cpu_s,
        "wall_s": outcome.wall_s,
        "rss_mb": outcome.rss_mb,
        "wrong_rows": check.wrong,
    }
    return Measured(
        metrics,
        check.correct,
        "" if check.correct else f"{check.wrong} of {check.rows} {check.example}",
    )


def _check(part: str, load: Input, form: str, output: Path) -> Check:
    return (
        check_windows(load.of(form), form, output)
        if part == "A"
        else check_outliers(load.outliers(), output)
    )
