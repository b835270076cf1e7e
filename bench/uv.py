"""Unique visitors of the day so far, every minute, by channel: text, dictionary and bitmaps, and a
sketch side by side.

    python -m bench uv [--records 400000] [--devices 200000] [--rounds 3] [--ways text,uv,near]
                       [--kill 0.7]

One day of records of ten channels in Parquet, on two workers. All ways of a round follow each
other, and the medians over the rounds are printed. The rows of the exact ways must be those of
DuckDB's ``count(DISTINCT)``, for every minute and channel; those of the sketch must be near.
``state_bytes_per_device`` is what the devices take in the stores at the end of the day: entries of
the dictionary and bitmaps, texts, or sketches.

With ``--kill`` a worker is killed once that share of all rows is there. ``silence_s`` is then the
longest time after it in which no row appeared: detection, recovery with the state of that moment,
and the first output.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import duckdb

from bench.contest import Outcome, execute
from bench.contestants import Job, ours
from bench.uv_killed import Kill
from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.aggregates.stored_form import WHOLE
from millwheel.core.formats.number_runs import ROW
from millwheel.core.pipeline.dictionaries import partition_of

WAYS = {
    "text": (
        "window: {cumulative: 1d, every: 1m}\n    aggregate: {visitors: {count_distinct: device}}"
    ),
    "uv": "uv: {of: device, every: 1m}",
    "near": "uv: {of: device, every: 1m, approximate: true}",
}
CHANNELS, FILES, PARTITIONS = 10, 4, 4096
_DAY_MS, _MINUTE_MS = 86_400_000, 60_000
_NEAR = 0.1
"""A sketch of 1.6 % may be this far off: six times its error."""
_SAMPLE = 100_000
"""State is weighed with at most so many devices."""

_PIPELINE = """
pipeline: visitors
streams:
  visits:
    source: {files: {path: "${input}/*.parquet", format: "${form}"}}
    timestamp: {field: ts, unit: ms}
    watermark: {max_delay: 10s, max_future: null}
    fields: {device: str, channel: int, ts: int}
computations:
  visitors:
    input: {visits: {key: channel}}
    WAY
    output: visitors
sinks:
  visitors: {files: {path: "${output}", format: jsonl}}
"""

Counts = dict[tuple[int, int], int]
"""By channel and end of the window (µs): the count."""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench uv", description=__doc__)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--devices", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS), help="some of them, with commas")
    parser.add_argument(
        "--kill", type=float, default=0.0, help="kill a worker after this share of the rows"
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one run")
    arguments = parser.parse_args()
    ways = arguments.ways.split(",")
    duckdb.execute("SET enable_progress_bar = false")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "in", arguments.records, arguments.devices)
        right = expected(folder / "in")
        rates: dict[str, list[float]] = {way: [] for way in ways}
        costs: dict[str, list[float]] = {way: [] for way in ways}
        memory: dict[str, float] = {}
        silences: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(arguments.rounds):
            for way in ways:
                outcome, silence_s = measure(
                    folder, way, right, arguments.timeout, int(arguments.kill * len(right))
                )
                silences[way] += [] if silence_s is None else [silence_s]
                rates[way].append(arguments.records / (outcome.seconds or 1))
                costs[way].append(outcome.cpu_s / arguments.records * 1e6)
                memory[way] = outcome.rss_mb
        for way in ways:
            figure: dict[str, object] = {
                "way": way,
                "records": arguments.records,
                "devices": arguments.devices,
                "records_per_s": round(statistics.median(rates[way])),
                "cpu_us_per_record": round(statistics.median(costs[way]), 2),
                "state_bytes_per_device": round(
                    state_bytes(way, min(arguments.devices, _SAMPLE)), 2
                ),
                "rss_mb": round(memory[way]),
            }
            if arguments.kill:
                figure["silence_s"] = [round(each, 2) for each in silences[way]]
            print(json.dumps(figure), flush=True)
    return 0


def write(folder: Path, records: int, devices: int) -> None:
    """Input files, in each of which time goes on evenly over one day. Every other record is the
    first of a device, as long as there are any; the others are of any device."""
    folder.mkdir(parents=True)
    for number in range(FILES):
        duckdb.execute(f"""
            COPY (
                SELECT printf('device-%010d', CASE WHEN i % 2 = 0 AND i // 2 < {devices}
                           THEN (i // 2 * 7919) % {devices} ELSE hash(i) % {devices} END) AS device,
                       (hash(i + 1) % {CHANNELS})::BIGINT AS channel,
                       (i * {_DAY_MS}::HUGEINT // {records})::BIGINT AS ts
                FROM range({records}) AS every(i) WHERE i // 2 % {FILES} = {number} ORDER BY i
            ) TO '{folder}/{number}.parquet' (FORMAT parquet, ROW_GROUP_SIZE 50000)
        """)


def expected(folder: Path) -> Counts:
    """Different devices so far, for every minute from the first record of a channel on, by
    DuckDB."""
    found = duckdb.execute(f"""
        WITH firsts AS (
            SELECT channel, device,
              min(ts // {_MINUTE_MS}) AS minute FROM '{folder}/*.parquet' GROUP BY ALL
        ), new AS (SELECT channel, minute,
          count(DISTINCT device) AS devices FROM firsts GROUP BY ALL),
        grid AS (
            SELECT channel, unnest(range(min(minute),
              {_DAY_MS // _MINUTE_MS})) AS minute FROM new GROUP BY channel
        )
        SELECT channel, minute,
          sum(coalesce(devices, 0)) OVER (PARTITION BY channel ORDER BY minute)
        FROM grid LEFT JOIN new USING (channel, minute)
    """).fetchall()
    return {
        (channel, (minute + 1) * _MINUTE_MS * 1000): int(devices)
        for channel, minute, devices in found
    }


def measure(
    folder: Path, way: str, right: Counts, timeout_s: float, kill_after: int = 0
) -> tuple[Outcome, float | None]:
    """One run, checked, and the longest silence of the sink after a worker was killed behind so
    many rows (0: none)."""
    work = folder / "run"
    work.mkdir()
    (work / "visitors.yaml").write_text(_PIPELINE.replace("WAY", WAYS[way]))
    kill = Kill(work / "out", kill_after)
    if kill_after:
        kill.start()
    outcome = execute(
        ours(str(work / "visitors"), 2)(Job(work, folder / "in", "parquet", timeout_s))
    )
    if kill_after:
        kill.end()
    if outcome.seconds is None or outcome.error:
        sys.exit(f"{way}: {outcome.error or outcome.tail}")
    found = results(work / "out")
    if not (near(found, right) if way == "near" else found == right):
        sys.exit(f"{way}: other counts than DuckDB's, {len(found)} of {len(right)}")
    shutil.rmtree(work)
    return outcome, kill.silence_s


def results(folder: Path) -> Counts:
    """What a run has published. Each result must be there once."""
    rows = [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    found = {(row["channel"], row["window_end"]): row["visitors"] for row in rows}
    return found if len(found) == len(rows) else {}


def near(found: Counts, right: Counts) -> bool:
    """Whether the same minutes have counts that are about right."""
    return found.keys() == right.keys() and all(
        abs(found[at] - right[at]) <= _NEAR * right[at] + 1 for at in right
    )


def state_bytes(way: str, devices: int) -> float:
    """Bytes of state per device, where each device has visited one channel."""
    names = [f"device-{number:010d}" for number in range(devices)]
    if way == "uv":
        counters = [0] * PARTITIONS
        ids = []
        for name in names:
            at = partition_of(name, PARTITIONS)
            ids.append(at + PARTITIONS * counters[at])
            counters[at] += 1
        return ROW.itemsize + _accumulators("count_distinct", ids) / devices
    function = "count_distinct" if way == "text" else "approx_count_distinct"
    return _accumulators(function, names) / devices


def _accumulators(function: str, values: list[int] | list[str]) -> int:
    """The bytes of the accumulators of all channels, over which the values are dealt out."""
    made = make_aggregator(function, {}).growing()
    total = 0
    for channel in range(CHANNELS):
        mine = values[channel::CHANNELS]
        total += len(WHOLE.encode(made.add_many(made.create(), mine, [0] * len(mine))))
    return total
