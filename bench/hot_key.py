"""Unequal keys on two workers beside even ones: one with 90 % of the records, or by Zipf's law;
whole and divided.

    python -m bench hot_key [--rounds 3] [--records 400000] [--keys even,hot,1.1] [--instances 4]
                            [--skews scatter,auto]

There are 10,000 keys: ``even``, ``hot`` with one that has 90 % of the records, or by Zipf's law
with the exponent that is given. All runs of a round follow each other, and the medians over the
rounds are printed: the rate, and how many times that of even keys in the same round it is. With
``mean`` all runs on columns, ``rows`` is the same with a key by code (``plugins/keyed.py``), for
which records are read one by one, ``quantile`` makes sketches, and ``costly`` takes about 100 µs a
record (``plugins/costly.py``). Counts and sums of each run must be those that DuckDB finds in the
input.

The processor time of the busiest process, a worker, limits the rate where the machine has cores for
all. Unlike the rate it hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

from bench.contest import Outcome, execute
from bench.contestants import Job, ours
from millwheel.core.pipeline.keys import Divided

FUNCTIONS = {
    "mean": "{mean: cost}",
    "rows": "{mean: cost}",
    "quantile": "{quantile: cost, q: 0.5}",
    "costly": "{'costly:Costly': cost}",
}
EVEN, HOT, NONE = "even", "hot", "none"
KEYS, HOT_SHARE, FILES = 10_000, 0.9, 4
_OWN_KEYS = {"rows": "'keyed:by_k'"}
_TIMEOUT_S = 300.0
_SPAN_MS = 600_000

PIPELINE = """
pipeline: hot_key
streams:
  events:
    source: {files: {path: "${input}/*.jsonl", format: "${form}"}}
    timestamp: {field: ts, unit: ms}
    watermark: {max_delay: 10s, max_future: null}
    fields: {k: int, cost: int, ts: int}
computations:
  minutes:
    input: {events: {key: KEY}}
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
    parser.add_argument(
        "--functions", default=",".join(FUNCTIONS), help="some of them, with commas"
    )
    parser.add_argument(
        "--keys",
        default=f"{EVEN},{HOT}",
        help="even, hot, and exponents of Zipf's law, with commas",
    )
    parser.add_argument("--instances", type=int, default=4)
    parser.add_argument(
        "--skews",
        default="scatter",
        help="ways to divide keys that are not even, with commas; all, none",
    )
    arguments = parser.parse_args()
    keys = list(dict.fromkeys([EVEN, *arguments.keys.split(",")]))
    duckdb.execute("SET enable_progress_bar = false")
    with tempfile.TemporaryDirectory() as folder:
        for each in keys:
            write(Path(folder) / each, arguments.records, each)
        right = {each: expected(Path(folder) / each) for each in keys}
        for function in arguments.functions.split(","):
            rates: dict[str, list[float]] = {
                way: [] for way in ways_of(keys, arguments.skews, arguments.instances)
            }
            busiest: dict[str, list[float]] = {way: [] for way in rates}
            for _ in range(arguments.rounds):
                for way, (name, skew) in ways_of(
                    keys, arguments.skews, arguments.instances
                ).items():
                    outcome = measure(Path(folder), name, skew, function, right[name])
                    rates[way].append(arguments.records / (outcome.seconds or 1))
                    busiest[way].append(outcome.busiest_cpu_s / arguments.records * 1e6)
            for way, found in rates.items():
                figure = {
                    "function": function,
                    "way": way,
                    "records_per_s": round(statistics.median(found)),
                    "of_even": of_even(found, rates[EVEN]),
                    "busiest_cpu_us_per_record": round(statistics.median(busiest[way]), 2),
                }
                print(json.dumps(figure), flush=True)
    return 0


def ways_of(keys: Sequence[str], skews: str, instances: int) -> dict[str, tuple[str, str]]:
    """By name of a run: the keys of its input, and how the pipeline divides them. Even ones are not
    divided."""
    names = (
        [each.value for each in Divided]
        if skews == "all"
        else [each for each in skews.split(",") if each != NONE]
    )
    found = {}
    for each in keys:
        found[_said(each)] = (each, "hash")
        for skew in names if each != EVEN else ():
            found[f"{_said(each)}, {skew}"] = (each, f"{skew}({instances})")
    return found


def _said(keys: str) -> str:
    return keys if keys in (EVEN, HOT) else f"zipf {keys}"


def of_even(rates: Sequence[float], even: Sequence[float]) -> float:
    """How many times the rate of even keys, in the median round."""
    return round(
        statistics.median(mine / theirs for mine, theirs in zip(rates, even, strict=True)), 2
    )


def write(folder: Path, records: int, keys: str) -> None:
    """Input files, in each of which time goes on evenly."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    shares = shares_of(keys)
    each = records // FILES
    for number in range(FILES):
        columns = {
            "k": rng.choice(KEYS, each, p=shares),
            "cost": rng.integers(1, 1000, each),
            "ts": np.arange(each) * _SPAN_MS // each,
        }
        pl.DataFrame(columns).write_ndjson(folder / f"{number}.jsonl")


def shares_of(keys: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What share of the records each key has."""
    if keys in (EVEN, HOT):
        hot = HOT_SHARE if keys == HOT else 0.0
        shares = np.full(KEYS, (1 - hot) / KEYS)
        shares[0] += hot
        return shares
    weights = np.arange(1, KEYS + 1) ** -float(keys)
    return np.asarray(weights / weights.sum())


def measure(folder: Path, name: str, skew: str, function: str, right: Rows) -> Outcome:
    """One run, checked."""
    work = folder / "run"
    work.mkdir()
    text = PIPELINE.replace("KEY", _OWN_KEYS.get(function, "k")).replace("SKEW", skew)
    (work / "hot_key.yaml").write_text(text.replace("FUNCTION", FUNCTIONS[function]))
    outcome = execute(ours(str(work / "hot_key"), 2)(Job(work, folder / name, "jsonl", _TIMEOUT_S)))
    if outcome.seconds is None or outcome.error:
        sys.exit(f"{name}, {skew}, {function}: {outcome.error or outcome.tail}")
    if set(results(work / "out")) != right:
        sys.exit(f"{name}, {skew}, {function}: other rows than DuckDB's")
    shutil.rmtree(work)
    return outcome


def results(folder: Path) -> Iterator[tuple[int, int, int, int]]:
    """What a run has published. A key by code is named ``key``."""
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            yield (
                row["k"] if "k" in row else row["key"],
                row["window_start"],
                row["n"],
                row["spend"],
            )


def expected(folder: Path) -> Rows:
    """The same by DuckDB."""
    query = (
        f"SELECT k, ts // 60000 * 60000000, count(*), sum(cost)::BIGINT FROM '{folder}/*.jsonl'"
        " GROUP BY ALL"
    )
    return set(duckdb.execute(query).fetchall())
