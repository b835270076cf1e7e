"""From objects to partitioned Parquet files in a bucket, while workers are killed."""

from __future__ import annotations

import gzip
import io
import json
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from millwheel.adapters.spaces.object_address import ObjectAddress
from millwheel.adapters.spaces.object_store import ObjectStore
from tests.fakes.buckets import BUCKET
from tests.fakes.s3_server import S3Server
from tests.slow.runs import EXAMPLES, Run

pytestmark = pytest.mark.slow

FOLLOWED = """
pipeline: followed_clicks
streams:
  clicks:
    source: {files: {path: "${input}/*.jsonl", format: jsonl, follow: true, names: rising,
      config: ${config}}}
    timestamp: {field: ts, unit: ms}
    fields: {country: str, ts: int, n: int}
computations:
  all: {input: {clicks: {key: country}}, filter: "n >= 0", output: all}
sinks:
  all: {files: {path: out, flush: 20ms, partition_by: country, roll: {size: 200kB, every: 10m}}}
"""

RECORDS, OBJECTS = 240_000, 4  # so many that it runs on while it is disturbed
COUNTRIES = ("DE", "FR", "a/b")
START_MS = 1_769_903_000_000  # a quarter of an hour before midnight


def test_each_count_appears_once(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.fail()
    clicks = [{"country": COUNTRIES[n * 7 % 3], "ts": START_MS + n * 40} for n in range(RECORDS)]
    store = ObjectStore(ObjectAddress("s3", BUCKET, ""), s3.config)
    for number in range(OBJECTS):
        lines = "".join(json.dumps(click) + "\n" for click in clicks[number::OBJECTS])
        store.stage(f"in/day={number}/clicks.jsonl.gz", gzip.compress(lines.encode()))
    monkeypatch.setenv("KEY_ID", "test")
    monkeypatch.setenv("KEY", "test-secret")
    params = {"input": f"s3://{BUCKET}/in", "output": f"s3://{BUCKET}/out", "endpoint": s3.url}
    run = Run(EXAMPLES / "objects" / "clicks.yaml", tmp_path, params).start()
    try:
        while not any(store.list("out/day=")) and run.process.poll() is None:
            time.sleep(0.05)
        killed = run.kill_at_random(
            ("millwheel.engine.workers",), seed=3, times=2, pause_s=(0.0, 0.1)
        )["millwheel.engine.workers"]
    finally:
        run.wait(180)
    assert killed, "it ended before it was disturbed"
    assert run.code == 0, run.said
    assert "test-secret" not in run.said
    names = [
        found.key for found in store.list("out/") if not found.key.startswith("out/.millwheel/")
    ]
    rows = []
    for name in names:
        table = pq.read_table(io.BytesIO(store.get(name) or b""))
        folder = (
            f"day={table['window_start'][0].as_py():%Y-%m-%d}/country={table['country'][0].as_py()}"
        )
        assert name.startswith(f"out/{folder.replace('a/b', 'a%2Fb')}/part-"), name
        rows += table.to_pylist()
    found = Counter(
        {
            (row["country"], int(row["window_start"].timestamp() * 1000)): row["clicks"]
            for row in rows
        }
    )
    assert len(rows) == len(found), "a row appears twice"
    assert found == Counter((click["country"], click["ts"] // 60_000 * 60_000) for click in clicks)  # type: ignore[operator]
    assert not any(found.key.endswith(".tmp") for found in store.list("out/"))


def test_followed_objects_are_read_once_into_few_files_day_after_day(
    s3: S3Server, tmp_path: Path
) -> None:
    """Workers die on the first day; on the second, the run goes on where it was, with new objects
    only."""
    s3.fail()
    store = ObjectStore(ObjectAddress("s3", BUCKET, ""), s3.config)
    text = FOLLOWED.replace("${config}", json.dumps(s3.config)).replace(
        "${input}", f"s3://{BUCKET}/days"
    )
    (tmp_path / "clicks.yaml").write_text(text)
    numbers: list[int] = []
    for day in range(2):
        for part in range(3):
            more = range(len(numbers), len(numbers) + 8_000)
            numbers += more
            rows = [{"country": COUNTRIES[n % 2], "ts": START_MS + n, "n": n} for n in more]
            store.stage(
                f"days/{day}-{part}.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode()
            )
        run = Run(tmp_path / "clicks.yaml", tmp_path, more=("--until-caught-up",)).start()
        try:
            while not any(tmp_path.glob("out/country=*/*.jsonl")) and run.process.poll() is None:
                time.sleep(0.05)
            if day == 0:
                killed = run.kill_at_random(
                    ("millwheel.engine.workers",), seed=7, times=2, pause_s=(0.0, 0.1)
                )
                assert killed["millwheel.engine.workers"], "it ended before it was disturbed"
        finally:
            run.wait(120)
        assert run.code == 0, run.said
        files = sorted(tmp_path.glob("out/country=*/*.jsonl"))
        found = [json.loads(line)["n"] for path in files for line in path.read_text().splitlines()]
        assert sorted(found) == numbers
        # By size, and two unfinished ones of each shard and owner: not one of each 20 ms.
        assert len(files) < 2 * sum(path.stat().st_size for path in files) / 200_000 + 2 * 8 * (
            day + 2
        ), files
        assert not list(tmp_path.glob("out/.millwheel/*.tmp"))
