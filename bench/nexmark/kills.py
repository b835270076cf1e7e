"""Nexmark's queries while workers, masters and injectors are killed, each run judged by DuckDB.

    python -m bench nexmark-kills [--events 1000000] [--only q0 q11] [--faults 4] [--seed 1]
        [--launcher spark]

Each query runs in ``millwheel chaos``: once undisturbed and once under faults. Both must have
DuckDB's rows; of change logs chaos itself cannot judge more, since intermediate versions are
chance. Prints a line for each query, and exits with 1 if a row is wrong anywhere.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.nexmark.events import nexmark
from bench.nexmark.judge import judged, rows_of
from bench.nexmark.queries import QUERIES
from bench.paths import HOUSE

RUNS = ("calm", "chaos")
_TIMEOUT_S = 1_200.0


def main() -> int:
    options = _parser().parse_args()
    events = nexmark(options.events)
    wrong = [name for name in options.only or QUERIES if not _holds(name, events, options)]
    print(f"wrong: {', '.join(wrong)}" if wrong else "all rows are DuckDB's")
    return int(bool(wrong))


def _holds(name: str, events: Path, options: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(prefix="millwheel-nexmark-") as made:
        folder = Path(made)
        file, summary = folder / f"{name}.yaml", folder / "summary.json"
        file.write_text(QUERIES[name].pipeline(name))
        command = [sys.executable, "-m", "millwheel", "chaos", str(file)]
        command += ["--set", f"input={events}", "--set", f"output={folder}/out/{{run}}"]
        command += ["--folder", str(folder / "roots"), "--summary", str(summary)]
        command += ["--faults", str(options.faults), "--every", options.every]
        command += ["--seed", str(options.seed), "--launcher", options.launcher]
        environment = {**os.environ, "PYTHONPATH": str(HOUSE)}
        ran = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=_TIMEOUT_S
        )
        if not summary.exists():
            print(f"{name}: chaos ended without a summary: {(ran.stderr or ran.stdout)[-2_000:]}")
            return False
        faults = sum(each["count"] for each in msgspec.json.decode(summary.read_bytes())["faults"])
        checks = [judged(QUERIES[name], events, rows_of(folder / "out" / run)) for run in RUNS]
        text = line(name, faults, [(check.rows, check.wrong, check.example) for check in checks])
        print(text, flush=True)
        return all(check.correct for check in checks)


def line(name: str, faults: int, checks: Sequence[tuple[int, int, str]]) -> str:
    """What the runs of a query gave: (rows, how many of them are wrong, one of those) each."""
    wrong = [
        f"{run}: {count} of {rows} rows are wrong; {example}"
        for run, (rows, count, example) in zip(RUNS, checks, strict=True)
        if count
    ]
    return f"{name}, {faults} faults: {'; '.join(wrong) or f'{checks[0][0]:,} rows, all right'}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench nexmark-kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=1_000_000, help="of all kinds (1,000,000)")
    parser.add_argument("--only", nargs="+", choices=list(QUERIES), help="these queries")
    parser.add_argument("--faults", type=int, default=4, help="at most, for each query (4)")
    parser.add_argument("--every", default="300ms", help="mean time between two (300ms)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same faults (1)")
    parser.add_argument("--launcher", choices=("processes", "spark"), default="processes")
    return parser
