"""Into a Delta table and an Iceberg table, while workers are killed."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from millwheel.connect.connectors.tables.delta import DeltaLakeTable
from millwheel.connect.connectors.tables.table import TableChange, TableConflictError, TableMark
from tests.fakes.buckets import BUCKET
from tests.fakes.s3_server import S3Server
from tests.slow.runs import EXAMPLES, Run

pytestmark = pytest.mark.slow

RECORDS = 40_000
COUNTRIES = ("DE", "FR", "IT", "ES", "PL")


def counted(rows: Any) -> Counter[tuple[str, int]]:
    """By country and minute; each has one row."""
    with duckdb.connect() as connection:
        found = (
            connection.from_arrow(rows)
            .project("country, epoch_ms(window_start), clicks")
            .fetchall()
        )
    counts = Counter({(country, int(at)): clicks for country, at, clicks in found})
    assert len(counts) == len(found), "a row appears twice"
    return counts


def until_writing(run: Run, log: Path) -> None:
    """Until some shard has written to the table, or the run is over."""
    while len(list(log.glob("*.json"))) < 2 and run.process.poll() is None:
        time.sleep(0.05)


def test_a_delta_table_in_a_bucket_takes_one_of_two_commits(s3: S3Server) -> None:
    s3.fail()
    schema = pa.schema([("n", pa.int64())])
    table = DeltaLakeTable(f"s3://{BUCKET}/{uuid4().hex}", {**s3.config, "allow_http": True})
    table.create(schema)
    first, second = table.look(), table.look()
    first.commit(TableChange({"a": TableMark(0, 1)}, pa.table({"n": [1]}, schema=schema)))
    with pytest.raises(TableConflictError):
        second.commit(TableChange({"b": TableMark(0, 1)}, pa.table({"n": [2]}, schema=schema)))
    assert table.look().mark("a") == TableMark(0, 1)


def test_each_row_is_in_its_table_once(tmp_path: Path) -> None:
    clicks = [{"country": COUNTRIES[n * 7 % 5], "ts": n * 20} for n in range(RECORDS)]
    (tmp_path / "in").mkdir()
    for number in range(4):
        lines = "".join(json.dumps(click) + "\n" for click in clicks[number::4])
        (tmp_path / "in" / f"{number}.jsonl").write_text(lines)
    tables = tmp_path / "tables"
    tables.mkdir()
    params = {"input": str(tmp_path / "in"), "tables": str(tables)}
    run = Run(EXAMPLES / "tables" / "clicks.yaml", tmp_path, params).start()
    try:
        until_writing(run, tables / "counts" / "_delta_log")
        killed = run.kill_at_random(
            ("millwheel.engine.workers",), seed=5, times=2, pause_s=(0.0, 0.2)
        )["millwheel.engine.workers"]
    finally:
        run.wait(180)
    assert killed, "it ended before it was disturbed"
    assert run.code == 0, run.said
    expected = Counter((click["country"], click["ts"] // 60_000 * 60_000) for click in clicks)  # type: ignore[operator]
    assert counted(DeltaTable(tables / "counts").to_pyarrow_table()) == expected
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{tables}/catalog.db")
    assert counted(catalog.load_table("shop.minutes").scan().to_arrow()) == expected
