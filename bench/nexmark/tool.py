"""Nexmark's queries, each run judged by DuckDB.

    python -m bench nexmark [--events 1000000] [--rounds 3] [--only q0 q11] [--flink]
        [--spark] [--hot-seller]

Files to files, two worker processes, exactly-once; of a round, all queries follow each other, each
beside DuckDB's rate for the same query in a batch (its files read anew, its rows written as JSON
lines), which is a limit and not a peer. With ``--flink`` that is also beside Flink SQL on two
slots, with and without mini-batches for the queries whose rows change (the better counts; it drops
their rows at the sink, while ours are written); with ``--spark`` beside Spark Structured Streaming
on two cores, whose rows are counted where they are only appended. The clock runs from the first
look at the input to the last byte of the results, so the start of processes is outside; for DuckDB
it is the statement. A run of ours with a wrong row ends the program. Prints a line for each run,
then a table of medians with their spread.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import duckdb

from bench.contest import Run, execute
from bench.contestants import FLINK, SPARK, Job, local
from bench.nexmark.events import TABLES, nexmark
from bench.nexmark.judge import judged, number_wanted, rows_of
from bench.nexmark.queries import QUERIES
from bench.paths import HOUSE

_TIMEOUT_S = 1_200.0  # ten million events beside other work
_WITHOUT = {"flink": {"q6"}, "spark": {"q4", "q6", "q15", "q16", "q19"}}
"""Queries that a system does not have: Flink's ``OVER`` takes no changes; docs/comparison.md has
what Spark says of each."""
_PEERS = ("flink", "spark")
_OPEN_AT_THE_END = {"q5", "q7", "q8", "q11"}
"""Of these Spark never writes the last windows, which no record closes."""


def main() -> int:
    options = _parser().parse_args()
    events = nexmark(options.events, hot_seller=options.hot_seller)
    names = options.only or list(QUERIES)
    peers = [name for name in _PEERS if getattr(options, name)]
    systems = ["millwheel", *peers, "duckdb"]
    rates: dict[str, dict[str, list[float]]] = {
        system: {name: [] for name in names} for system in systems
    }
    for number in range(options.rounds):
        for name in names:
            for system in systems:
                if name in _WITHOUT.get(system, ()):
                    continue
                seconds = _SYSTEMS[system](name, events, options.workers)
                rates[system][name].append(options.events / seconds)
                print(
                    f"round {number + 1}, {name}, {system}: {options.events / seconds:,.0f}/s",
                    flush=True,
                )
    print(table(rates))
    return 0


def table(rates: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Markdown of rates by system and query: events of all kinds per second, the median (least to
    greatest), and how many times the others' rate ours is."""
    ours, others = rates["millwheel"], {name: rates[name] for name in rates if name != "millwheel"}
    titles = {"flink": "Flink SQL", "spark": "Spark", "duckdb": "DuckDB in a batch"}
    head = " | ".join(f"{titles[each]} | against it" for each in others)
    lines = [f"| query | | events/s | {head} |", "|---" * (3 + 2 * len(others)) + "|"]
    ratios: dict[str, list[float]] = {each: [] for each in others}
    for name, values in ours.items():
        cells = [name, QUERIES[name].title, _spread(values)]
        for each, beside in others.items():
            if not beside[name]:
                cells += ["", ""]
                continue
            ratios[each].append(statistics.median(values) / statistics.median(beside[name]))
            cells += [_spread(beside[name]), f"{ratios[each][-1]:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    means = " | | ".join(f"{statistics.geometric_mean(ratios[each]):.2f}" for each in others)
    return "\n".join([*lines, f"| all | geometric mean | | | {means} |"])


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def _ours(name: str, events: Path, workers: int) -> float:
    """The seconds of one run. Ends the program if a row is wrong."""
    with tempfile.TemporaryDirectory(prefix="millwheel-nexmark-") as made:
        folder, query = Path(made), QUERIES[name]
        file = folder / f"{name}.yaml"
        file.write_text(query.pipeline(name))
        output = folder / "out"
        command = [sys.executable, "-m", "millwheel", "run", str(file), "--launcher", "processes"]
        command += ["--workers", str(workers), "--root", str(folder / "root")]
        command += ["--set", f"input={events}", "--set", f"output={output}"]
        environment = {"PYTHONPATH": str(HOUSE)}
        outcome = execute(Run(command, folder, events, output, _TIMEOUT_S, environment))
        if outcome.error or outcome.seconds is None:
            sys.exit(f"{name}: {outcome.error or outcome.tail}")
        check = judged(query, events, rows_of(output))
        if not check.correct:
            sys.exit(f"{name}: {check.wrong} of {check.rows} rows are wrong; {check.example}")
        return outcome.seconds


def _flink(name: str, events: Path, workers: int) -> float:
    """The same by Flink: the better of what it has."""
    ways = ["plain", "mini-batches"] if QUERIES[name].key else ["plain"]
    return min(_flink_once(name, events, way) for way in ways)


def _flink_once(name: str, events: Path, way: str) -> float:
    with tempfile.TemporaryDirectory(prefix="millwheel-nexmark-") as made:
        job = Job(Path(made), events, "jsonl", _TIMEOUT_S)
        outcome = execute(local("flink_nexmark.py", name, way, python=FLINK)(job))
        if outcome.error or outcome.seconds is None:
            sys.exit(f"{name} on Flink: {outcome.error or outcome.tail}")
        return outcome.seconds


def _spark(name: str, events: Path, workers: int) -> float:
    """The same by Spark. Ends the program if its number of rows is wrong."""
    with tempfile.TemporaryDirectory(prefix="millwheel-nexmark-") as made:
        job = Job(Path(made), events, "jsonl", _TIMEOUT_S)
        outcome = execute(local("spark_nexmark.py", name, python=SPARK)(job))
        if outcome.error or outcome.seconds is None:
            sys.exit(f"{name} on Spark: {outcome.error or outcome.tail}")
        if QUERIES[name].appends:
            check_number(name, lines_in(job.output), number_wanted(QUERIES[name], events))
        return outcome.seconds


def lines_in(folder: Path) -> int:
    """Of all JSON files below it."""
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.json"))


def check_number(name: str, found: int, wanted: int) -> None:
    """Ends the program if Spark has written a wrong number of rows."""
    least = 0 if name in _OPEN_AT_THE_END else wanted
    if not least <= found <= wanted:
        sys.exit(f"{name} on Spark: {found} rows in place of {wanted}")


def _duckdb(name: str, events: Path, workers: int) -> float:
    """How long DuckDB takes on two threads, from files to a file (s)."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        database.execute("set threads = 2")
        began_s = time.monotonic()
        for kind in TABLES:
            files = str(events / f"{kind}-*.jsonl")
            database.read_json(files, format="newline_delimited").create_view(kind)
        database.execute(f"copy ({QUERIES[name].sql}) to '{folder}/rows.json' (format json)")
        return time.monotonic() - began_s


_SYSTEMS: Mapping[str, Callable[[str, Path, int], float]] = {
    "millwheel": _ours,
    "flink": _flink,
    "spark": _spark,
    "duckdb": _duckdb,
}


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
    parser.add_argument("--flink", action="store_true", help="beside Flink SQL")
    parser.add_argument("--spark", action="store_true", help="beside Spark Structured Streaming")
    parser.add_argument(
        "--hot-seller", action="store_true", help="one seller has half of all auctions"
    )
    return parser
