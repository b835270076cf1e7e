"""All groupings in a real run, with one key that has most of the records, while workers die: the
rows of DuckDB."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

from millwheel.core.pipeline.keys import Divided
from tests.slow.runs import REPO, Run

pytestmark = pytest.mark.slow

FILES, KEYS, SPAN_MS = 4, 200, 600_000
COSTLY = ", more: {'costly:Costly': cost}"
"""About 100 µs a record, in rows: so there is something to kill."""
PIPELINE = """
pipeline: grouped
streams:
  events:
    source: {files: {path: "${input}/*.jsonl", format: jsonl}}
    timestamp: {field: ts, unit: ms}
    watermark: {max_delay: 10s, max_future: null}
    fields: {k: str, cost: int, ts: int}
computations:
"""
COMPUTATION = """
  SKEW:
    input: {events: {key: k}}
    window: {tumbling: 1m}
    aggregate: {n: count, spend: {sum: cost}MORE}
    skew: SKEW(6)
    shards: 6
    output: SKEW
"""
SINK = """
  SKEW: {files: {path: "${out}/SKEW", format: jsonl}}
"""


def written(folder: Path, records: int) -> Path:
    """Files of records, 60 % of which have one key."""
    folder.mkdir()
    rng = random.Random(5)
    for number in range(FILES):
        with (folder / f"{number}.jsonl").open("w") as file:
            for index in range(records // FILES):
                key = "hot" if rng.random() < 0.6 else f"k{int(KEYS * rng.random() ** 3)}"
                at = SPAN_MS * index * FILES // records
                file.write(f'{{"k":"{key}","cost":{rng.randrange(1000)},"ts":{at}}}\n')
    return folder


def rows(source: str) -> list[tuple[object, ...]]:
    return duckdb.execute(f"SELECT * FROM ({source}) ORDER BY ALL").fetchall()


@pytest.mark.parametrize(
    ("groupings", "records", "more"),
    [
        pytest.param(
            [each.value for each in Divided if each.by_tables],
            20_000,
            COSTLY,
            id="rows",
            marks=pytest.mark.long,
        ),
        pytest.param(["tag", "w-choices"], 1_200_000, "", id="columns"),
    ],
)
def test_all_rows_are_those_of_duckdb_though_workers_die(
    tmp_path: Path, groupings: list[str], records: int, more: str
) -> None:
    events = written(tmp_path / "in", records)
    computations = "".join(
        COMPUTATION.replace("SKEW", each).replace("MORE", more) for each in groupings
    )
    sinks = "".join(SINK.replace("SKEW", each) for each in groupings)
    pipeline = tmp_path / "grouped.yaml"
    pipeline.write_text(f"{PIPELINE}{computations}sinks:{sinks}")
    params = {"input": str(events), "out": str(tmp_path / "out")}
    run = (
        Run(pipeline, tmp_path, params, path=(str(REPO / "bench" / "plugins"),))
        .start()
        .until_committed()
    )
    killed = run.kill_at_random(
        ("millwheel.engine.workers",), seed=records, times=4, pause_s=(0.2, 1.2)
    )
    run.wait()
    assert run.code == 0, run.said
    assert killed["millwheel.engine.workers"] >= 1, run.said
    want = (
        "SELECT k, ts // 60000 * 60000000 AS at, count(*), sum(cost)::BIGINT FROM"
        f" '{events}/*.jsonl' GROUP BY ALL"
    )
    for each in groupings:
        found = rows(f"SELECT k, window_start, n, spend FROM '{tmp_path}/out/{each}/*.jsonl'")
        assert found == rows(want), each
