"""``python -m bench scale``: what 1, 2, 4, 8 and 16 workers do on the machine it is started on.

    python -m bench scale [--workers 1 2 4 8 16] [--rounds 3] [--records 250000] [--nodes 32]
                          [--out scale.json]
                          [--picture FILE] [--drawn-from scale.json]

Parts A (windows) and B (callbacks) get two files of ``--records`` events per worker, so twice the
workers have twice the work; ideal is the same time. The pipeline of ``--nodes`` nodes with a sink
each has next to no records: it shows what starting, a death and ending cost as shards become more.
Bare Python loops over the same files, one for each worker, show what the machine itself has for
more processes. Every answer is checked. Without ``--workers``, the counts are those of the list
above up to the number of cores. Workers are plain processes; it needs neither Java nor anything
outside requirements.lock. Prints a table, and writes what it ran on and every run into one JSON
file. ``--picture`` draws how rates grow with the workers; with ``--drawn-from``, from the file of
an earlier run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from bench.bare_loops import seconds as bare_seconds
from bench.contest import Outcome, execute
from bench.contestants import Job, ours
from bench.curves import curves
from bench.machine import machine
from bench.nodes import Bench
from bench.scaling_input import FILES_PER_WORKER, GrowingInput, growing
from bench.stats import spread

WORKERS = (1, 2, 4, 8, 16)
_TIMEOUT_S = 300.0
_PIPELINES = {"A": "windows", "B": "callback"}


@dataclass(frozen=True, slots=True)
class ScaleRun:
    """One run: which work, on how many workers, in which round. ``metrics`` have their unit last in
    the name; ``cpu_s`` has the CPU seconds of each process, by what it runs. ``error`` says why
    there are no metrics."""

    work: str
    workers: int
    run: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    cpu_s: Mapping[str, Sequence[float]] = field(default_factory=dict)
    correct: bool | None = None
    error: str = ""


def main() -> int:
    """See the module."""
    arguments = _parser().parse_args()
    if arguments.drawn_from is not None:
        earlier = json.loads(arguments.drawn_from.read_text(encoding="utf-8"))["runs"]
        arguments.picture.write_text(
            picture([ScaleRun(**each) for each in earlier]), encoding="utf-8"
        )
        return 0
    counts = arguments.workers or [count for count in WORKERS if count <= (os.cpu_count() or 1)]
    load = growing(arguments.records, FILES_PER_WORKER * max(counts))
    found: list[ScaleRun] = []
    before = machine()
    for run in range(arguments.rounds):
        for workers in counts:
            for work in _works(load, workers, arguments.nodes):
                found.append(_one(work, run))
                print(_line(found[-1]), file=sys.stderr, flush=True)
    settings = {
        "records_per_file": load.records,
        "files_per_worker": FILES_PER_WORKER,
        "nodes": arguments.nodes,
    }
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    text = {
        "at": at,
        "machine": before,
        "settings": settings,
        "runs": [asdict(each) for each in found],
    }
    arguments.out.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    if arguments.picture is not None:
        arguments.picture.write_text(picture(found), encoding="utf-8")
    print(
        table(found), f"\n{before['cores']} cores, {before['cpu']}; all runs are in {arguments.out}"
    )
    return 1 if any(each.error or each.correct is False for each in found) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        help="counts of workers (default: 1 2 4 … up to the cores)",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--records", type=int, default=250_000, help="in each of the two files of a worker"
    )
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("scale.json"))
    parser.add_argument("--picture", type=Path, help="draw the rates as an SVG")
    parser.add_argument(
        "--drawn-from", type=Path, help="run nothing, draw --picture from this file"
    )
    return parser


@dataclass(frozen=True, slots=True)
class _Work:
    name: str
    workers: int
    measure: Callable[[Path], ScaleRun]


def _works(load: GrowingInput, workers: int, nodes: int) -> list[_Work]:
    rates = [_Work(part, workers, partial(_rate, part, load, workers)) for part in _PIPELINES]
    rates.append(_Work("bare loops", workers, partial(_bare, load, workers)))
    return [*rates, _Work(f"{nodes} nodes", workers, partial(_nodes, nodes, workers))]


def _one(work: _Work, run: int) -> ScaleRun:
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        try:
            found = work.measure(Path(folder))
        except SystemExit as ex:
            found = ScaleRun(work.name, work.workers, run, error=str(ex))
    return ScaleRun(
        work.name, work.workers, run, found.metrics, found.cpu_s, found.correct, found.error
    )


def _rate(part: str, load: GrowingInput, workers: int, folder: Path) -> ScaleRun:
    """One run of part A or B, checked."""
    files = FILES_PER_WORKER * workers
    job = Job(folder, load.first(files), "jsonl", _TIMEOUT_S)
    outcome = execute(ours(_PIPELINES[part], workers)(job))
    if outcome.error or outcome.seconds is None:
        return ScaleRun(part, workers, 0, error=outcome.error or f"no results: {outcome.tail}")
    wrong = (load.wrong_windows if part == "A" else load.wrong_outliers)(files, job.output)
    return ScaleRun(
        part, workers, 0, _rates(outcome, load.records * files), outcome.roles, wrong == 0
    )


def _bare(load: GrowingInput, workers: int, _folder: Path) -> ScaleRun:
    """A bare Python loop for each worker, over its two files."""
    files = [load.lines(number) for number in range(FILES_PER_WORKER * workers)]
    took = bare_seconds(
        [files[at : at + FILES_PER_WORKER] for at in range(0, len(files), FILES_PER_WORKER)]
    )
    return ScaleRun(
        "bare loops",
        workers,
        0,
        {"records_per_s": load.records * len(files) / took, "seconds": took},
    )


def _rates(outcome: Outcome, records: int) -> dict[str, float]:
    assert outcome.seconds is not None
    return {
        "records_per_s": records / outcome.seconds,
        "seconds": outcome.seconds,
        "wall_s": outcome.wall_s,
        "cpu_us_per_record": outcome.cpu_s / records * 1e6,
        "rss_mb": outcome.rss_mb,
    }


def _nodes(nodes: int, workers: int, folder: Path) -> ScaleRun:
    """One run of the pipeline of many nodes; one worker is killed."""
    costs = Bench([sys.executable, "-m", "millwheel"], nodes, folder, workers).costs(kills=1)
    metrics = {
        "first_row_s": costs.first_row,
        "memory_mb": costs.memory_mb,
        "whole_again_s": costs.whole_again,
        "start_to_end_s": costs.start_to_end,
    }
    return ScaleRun(f"{nodes} nodes", workers, 0, metrics)


def table(runs: Sequence[ScaleRun]) -> str:
    """Medians per work and count of workers, as Markdown; the rate also as times that of the fewest
    workers."""
    works = list(dict.fromkeys(each.work for each in runs))
    return "\n\n".join(_panel(work, [each for each in runs if each.work == work]) for work in works)


def picture(runs: Sequence[ScaleRun]) -> str:
    """Medians of the rates as times that of the fewest workers, as an SVG."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for work in dict.fromkeys(each.work for each in runs):
        good = [each for each in runs if each.work == work and each.correct is not False]
        rates: dict[int, list[float]] = {}
        for each in good:
            if "records_per_s" in each.metrics:
                rates.setdefault(each.workers, []).append(each.metrics["records_per_s"])
        if rates:
            first = spread(rates[min(rates)]).median
            lines[work] = [(count, spread(rates[count]).median / first) for count in sorted(rates)]
    counts = sorted({count for line in lines.values() for count, _ in line})
    ideal = {"as many times": [(float(count), count / counts[0]) for count in counts]}
    return curves(
        "Records per second, as times that of the fewest workers", "workers", {**lines, **ideal}
    )


def _panel(work: str, runs: Sequence[ScaleRun]) -> str:
    good = [each for each in runs if each.metrics and each.correct is not False]
    if not good:
        return f"{work}: no run was right"
    names = list(good[0].metrics)
    rates = "records_per_s" in names
    rows = [
        f"| {work}: workers | {' | '.join([*names, *(['times the first'] if rates else [])])} |"
    ]
    rows.append("|---" * (len(names) + 1 + rates) + "|")
    first = 0.0
    for workers in sorted({each.workers for each in good}):
        medians = {
            name: spread([r.metrics[name] for r in good if r.workers == workers]).median
            for name in names
        }
        first = first or medians.get("records_per_s", 0.0)
        more = [f"{medians['records_per_s'] / first:.2f}"] if rates else []
        rows.append(
            f"| {workers} |"
            f" {' | '.join([*(f'{value:,.6g}' for value in medians.values()), *more])} |"
        )
    return "\n".join(rows)


def _line(found: ScaleRun) -> str:
    what = " ".join(f"{name}={value:,.6g}" for name, value in found.metrics.items())
    wrong = " WRONG" if found.correct is False else ""
    return (
        f"{found.work}, {found.workers} workers, run {found.run}:"
        f" {found.error.strip()[-300:] or what}{wrong}"
    )
