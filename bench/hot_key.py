"""One key with 90 % of the records on two workers: whole keys against divided ones, beside even keys.

    python -m bench hot_key [--rounds 3] [--records 400000] [--instances 4] [--skews scatter,auto,tag]

All runs of a round follow each other, and the medians over the rounds are printed: the rate, and how many times that of
even keys it is. With ``mean`` all runs on columns, ``quantile`` makes sketches, and ``costly`` takes about
100 µs a record (``plugins/costly.py``). Counts and sums of each run must be those that DuckDB finds in the input.

The processor time of the busiest process, a worker, limits the rate where the machine has cores for all. Unlike the
rate it hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb

from bench.contest import Outcome, execute
from bench.contestants import Job, ours
from millwheel.core.pipeline.spec import Divided

FUNCTIONS = {"mean": "{mean: cost}", "quantile": "{quantile: cost, q: 0.5}", "costly": "{'costly:Costly': cost}"}
KEYS, HOT_SHARE, FILES = 1000, 0.9, 4
_TIMEOUT_S = 300.0
_SPAN_MS = 600_000

_PIPELINE = """
pipeline: hot_key
streams:
  events:
    source: {files: {path: "${input}/*.jsonl", format: "${form}"}}
    timestamp: {field: ts, unit: ms}
    watermark: {max_delay: 10s, max_future: null}
    fields: {k: int, cost: int, ts: int}
computations:
  minutes:
    input: {events: {key: k}}
    window: {tumbling: 1m}
    aggregate: {n: count, spend: {sum: cost}, more: FUNCTION}
    skew: SKEW
    output: minutes
sinks:
  minutes: {files: {path: "${output}", format: jsonl}}
"""

Rows = set[tuple[int, int, int, int]]
"""Key, start of the window (µs), count, sum."""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench hot_key", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--functions", default=",".join(FUNCTIONS), help="some of them, with commas")
    parser.add_argument("--instances", type=int, default=4)
    parser.add_argument("--skews", default="scatter", help="ways to divide the hot key, with commas; all for each")
    given = parser.parse_args()
    skews = [each.value for each in Divided] if given.skews == "all" else given.skews.split(",")
    divided = {f"hot, {skew}": ("hot", f"{skew}({given.instances})") for skew in skews}
    ways = {"even": ("even", "hash"), "hot": ("hot", "hash"), **divided}
    with tempfile.TemporaryDirectory() as folder:
        for name, share in (("even", 0.0), ("hot", HOT_SHARE)):
            write(Path(folder) / name, given.records, share)
        for function in given.functions.split(","):
            rates: dict[str, list[float]] = {way: [] for way in ways}
            busiest: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(given.rounds):
                for way, (name, skew) in ways.items():
                    outcome = measure(Path(folder), name, skew, function)
                    rates[way].append(given.records / (outcome.seconds or 1))
                    busiest[way].append(outcome.busiest_cpu_s / given.records * 1e6)
            even = statistics.median(rates["even"])
            for way, found in rates.items():
                rate = statistics.median(found)
                figure = {
                    "function": function,
                    "way": way,
                    "records_per_s": round(rate),
                    "of_even": round(rate / even, 2),
                    "busiest_cpu_us_per_record": round(statistics.median(busiest[way]), 2),
                }
                print(json.dumps(figure), flush=True)
    return 0


def write(folder: Path, records: int, hot_share: float) -> None:
    """Input files, in each of which time goes on evenly."""
    folder.mkdir()
    rng = random.Random(1)
    for number in range(FILES):
        with (folder / f"{number}.jsonl").open("w") as file:
            each = records // FILES
            file.writelines(_line(rng, hot_share, index * _SPAN_MS // each) for index in range(each))


def _line(rng: random.Random, hot_share: float, at_ms: int) -> str:
    key = 0 if rng.random() < hot_share else rng.randrange(KEYS)
    return f'{{"k":{key},"cost":{rng.randrange(1, 1000)},"ts":{at_ms}}}\n'


def measure(folder: Path, name: str, skew: str, function: str) -> Outcome:
    """One run, checked."""
    work = folder / "run"
    work.mkdir()
    (work / "hot_key.yaml").write_text(_PIPELINE.replace("FUNCTION", FUNCTIONS[function]).replace("SKEW", skew))
    outcome = execute(ours(str(work / "hot_key"), 2)(Job(work, folder / name, "jsonl", _TIMEOUT_S)))
    if outcome.seconds is None or outcome.error:
        sys.exit(f"{name}, {skew}, {function}: {outcome.error or outcome.tail}")
    if set(results(work / "out")) != expected(folder / name):
        sys.exit(f"{name}, {skew}, {function}: other rows than DuckDB's")
    shutil.rmtree(work)
    return outcome


def results(folder: Path) -> Iterator[tuple[int, int, int, int]]:
    """What a run has published."""
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            yield row["k"], row["window_start"], row["n"], row["spend"]


def expected(folder: Path) -> Rows:
    """The same by DuckDB."""
    query = f"SELECT k, ts // 60000 * 60000000, count(*), sum(cost)::BIGINT FROM '{folder}/*.jsonl' GROUP BY ALL"
    return set(duckdb.execute(query).fetchall())
