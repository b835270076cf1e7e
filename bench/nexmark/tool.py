"""Nexmark's queries, each run judged by DuckDB.

    python -m bench nexmark [--events 1000000] [--rounds 3] [--only q0 q11]

Files to files, two worker processes, exactly-once; of a round, all queries follow each other, each
beside DuckDB's rate for the same query in a batch (its files read anew, its rows written as JSON
lines), which is a limit and not a peer. The clock runs from the first look at the input to the last
byte of the results, so the start of processes is outside; for DuckDB it is the statement. A run
with a wrong row ends the program. Prints a line for each run, then a table of medians with their
spread.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from bench.contest import Run, execute
from bench.nexmark.events import KINDS, nexmark
from bench.nexmark.judge import judged, rows_of
from bench.nexmark.queries import QUERIES, Query
from bench.paths import HOUSE

_TIMEOUT_S = 300.0


def main() -> int:
    options = _parser().parse_args()
    events = nexmark(options.events)
    names = options.only or list(QUERIES)
    rates: dict[str, list[float]] = {name: [] for name in names}
    limits: dict[str, list[float]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names:
            rate = _ours(name, QUERIES[name], events, options.events, options.workers)
            limit = options.events / _batch_s(QUERIES[name], events)
            rates[name].append(rate)
            limits[name].append(limit)
            print(f"round {number + 1}, {name}: {rate:,.0f}/s, duckdb {limit:,.0f}/s", flush=True)
    print(table(rates, limits))
    return 0


def table(rates: dict[str, list[float]], limits: dict[str, list[float]]) -> str:
    """Markdown: events of all kinds per second, the median (least to greatest)."""
    lines = ["| query | | events/s | DuckDB in a batch | share |", "|---|---|---|---|---|"]
    for name, values in rates.items():
        median, limit = statistics.median(values), statistics.median(limits[name])
        lines.append(
            f"| {name} | {QUERIES[name].title} | {_spread(values)} | {_spread(limits[name])} |"
            f" {median / limit:.2f} |"
        )
    mean = statistics.geometric_mean(
        statistics.median(values) / statistics.median(limits[name])
        for name, values in rates.items()
    )
    return "\n".join([*lines, f"| all | geometric mean of the shares | | | {mean:.2f} |"])


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def _ours(name: str, query: Query, events: Path, count: int, workers: int) -> float:
    """Events per second of one run. Ends the program if a row is wrong."""
    folder = Path(tempfile.mkdtemp(prefix="millwheel-nexmark-"))
    try:
        file = folder / f"{name}.yaml"
        file.write_text(query.pipeline(name))
        output = folder / "out"
        command = [sys.executable, "-m", "millwheel", "run", str(file), "--launcher", "processes"]
        command += ["--workers", str(workers), "--root", str(folder / "root")]
        command += ["--set", f"input={events}", "--set", f"output={output}"]
        outcome = execute(
            Run(command, folder, events, output, _TIMEOUT_S, {"PYTHONPATH": str(HOUSE)})
        )
        if outcome.error or outcome.seconds is None:
            sys.exit(f"{name}: {outcome.error or outcome.tail}")
        check = judged(query, events, rows_of(output))
        if not check.correct:
            sys.exit(f"{name}: {check.wrong} of {check.rows} rows are wrong; {check.example}")
        return count / outcome.seconds
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _batch_s(query: Query, events: Path) -> float:
    """How long DuckDB takes on two threads, from files to a file (s)."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        database.execute("set threads = 2")
        began_s = time.monotonic()
        for kind in KINDS:
            files = str(events / f"{kind}-*.jsonl")
            database.read_json(files, format="newline_delimited").create_view(kind)
        database.execute(f"copy ({query.sql}) to '{folder}/rows.json' (format json)")
        return time.monotonic() - began_s


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench nexmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=1_000_000, help="of all kinds (1,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="all queries once in each (3)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (2)")
    parser.add_argument("--only", nargs="+", choices=list(QUERIES), help="these queries")
    return parser
