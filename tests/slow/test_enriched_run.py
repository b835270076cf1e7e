"""Records are enriched with tables while processes are killed: the rows are those of a run in
peace."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.s3_server import S3Server
from tests.slow.runs import Run
from tests.slow.test_plugin import PLUGIN, installed

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: shop
streams:
  orders:
    source: {files: {path: "${input}/orders*.jsonl", format: jsonl}}
    timestamp: {field: at, unit: ms}
  items:
    source: {files: {path: "${input}/items.jsonl", format: jsonl}}
    timestamp: {field: at, unit: ms}
    table: {key: item, delete: gone}
  shelves: {source: {files: {path: "${input}/shelves*.jsonl", format: jsonl}}, table: shelf}
computations:
  priced:
    input: {orders: {key: item}, items: {key: item}}
    enrich: {with: items, as: of, missing: drop, broadcast: COPIES}
    output: priced
  placed:
    input: {priced: {key: {shelf: "mod(item, 5000)"}}, shelves: {key: shelf}}
    enrich: {with: shelves, broadcast: BROADCAST}
    output: placed
sinks:
  placed: {files: {path: "${output}/placed", flush: 50ms}}
"""
ORDERS, ITEMS, SHELVES = 120_000, 9_000, 40_000
WORKERS = "millwheel.engine.workers"
Row = dict[str, Any]


def written(folder: Path) -> None:
    draw = random.Random(5)
    folder.mkdir()

    def write(name: str, some: list[Row]) -> None:
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))

    times = sorted(draw.randrange(1_000_000) for _ in range(ORDERS))
    orders = [
        {"at": at, "n": number, "item": draw.randrange(6_000)} for number, at in enumerate(times)
    ]
    write("orders1", orders[::2])
    write("orders2", orders[1::2])
    items = [
        {"at": at, "item": draw.randrange(6_000), "n": number, "gone": draw.random() < 0.2}
        for number, at in enumerate(sorted(draw.randrange(1_000_000) for _ in range(ITEMS)))
    ]
    write("items", items)
    for part in range(2):
        some = range(part * SHELVES // 2, (part + 1) * SHELVES // 2)
        write(f"shelves{part}", [{"shelf": draw.randrange(5_000), "row": n} for n in some])


def written_with(broadcast: str, copies: str = "false") -> str:
    return PIPELINE.replace("BROADCAST", broadcast).replace("COPIES", copies)


def started(folder: Path, inputs: Path, broadcast: bool = False) -> Run:
    folder.mkdir()
    (folder / "p.yaml").write_text(written_with(str(broadcast).lower(), str(broadcast).lower()))
    params = {"input": str(inputs), "output": str(folder / "out")}
    return Run(folder / "p.yaml", folder, params).start()


def rows(run: Run) -> Counter[str]:
    run.wait()
    assert run.code == 0, run.said
    files = (run.folder / "out" / "placed").glob("part-*.jsonl")
    return Counter(line for path in files for line in path.read_text().splitlines())


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop") / "in"
    written(folder)
    return folder


@pytest.fixture(scope="module")
def calm(inputs: Path) -> Counter[str]:
    """The rows of a run in peace, which all others are to have."""
    found = rows(started(inputs.parent / "calm", inputs))
    assert len(found) == found.total() > ORDERS // 10
    assert any(json.loads(row)["shelves"] for row in found)
    return found


def test_records_are_enriched_once_and_alike_while_workers_are_killed(
    inputs: Path, calm: Counter[str], tmp_path: Path
) -> None:
    early = started(tmp_path / "early", inputs).until_committed()
    killed = early.kill_at_random((WORKERS,), seed=3, times=2, pause_s=(0.0, 0.3))
    assert rows(early) == calm, "killed while the tables are read"
    assert killed[WORKERS] == 2

    for broadcast in (False, True):
        late = started(tmp_path / f"late{broadcast}", inputs, broadcast).until_reading()
        killed = late.kill_at_random((WORKERS,), seed=4, times=2, pause_s=(0.1, 0.6))
        assert rows(late) == calm, f"killed while records are enriched, broadcast: {broadcast}"
        assert killed[WORKERS]


# Each half of it runs without the other, above and in test_bucket_root.
@pytest.mark.long
def test_a_table_is_held_whole_with_a_root_in_an_object_store(
    s3: S3Server, inputs: Path, calm: Counter[str], tmp_path: Path
) -> None:
    s3.fail()
    (tmp_path / "p.yaml").write_text(written_with("true"))
    params = {"input": str(inputs), "output": str(tmp_path / "out")}
    run = Run(tmp_path / "p.yaml", tmp_path, params, place=s3.root()).start().until_reading()
    names = (WORKERS, "millwheel.control.master")
    killed = run.kill_at_random(names, seed=4, times=3, pause_s=(0.1, 0.6))
    assert rows(run) == calm
    assert killed[WORKERS]


NEAR = """
pipeline: near
streams:
  orders:
    source: {files: {path: "${input}/orders*.jsonl", format: jsonl}}
    timestamp: {field: at, unit: ms}
    fields: {at: int, n: int, item: int}
  bids:
    source: {files: {path: "${input}/bids*.jsonl", format: jsonl}}
    timestamp: {field: at, unit: ms}
    fields: {at: int, b: int, item: int}
  shelves: {source: {files: {path: "${input}/shelves.jsonl", format: jsonl}}, table: shelf}
computations:
  pairs:
    input: {orders: {key: item}, bids: {key: item}}
    join: {kind: left, within: {before: 100ms, after: 300ms}}
    output: pairs
  flat:
    input: pairs
    map: {n: orders.n, b: bids.b if bids is not null else -1, shelf: "mod(orders.item, 500)"}
    output: flat
  placed:
    input: {flat: {key: shelf}, shelves: {key: shelf}}
    enrich: {with: shelves, broadcast: true}
    output: placed
sinks:
  placed: {files: {path: "${output}/placed", flush: 50ms}}
"""


@pytest.mark.parametrize(
    ("launcher", "victim"),
    [
        ("processes", WORKERS),
        pytest.param("spark", "CoarseGrainedExecutorBackend", marks=pytest.mark.long),
    ],
)
def test_pairs_within_an_interval_meet_a_held_table_in_workers_that_die(
    launcher: str, victim: str, tmp_path: Path
) -> None:
    """A bid comes 3 ms behind the order of its number, under another item for most of them."""
    orders = [{"at": n * 10, "n": n, "item": n * 7 % 1_000} for n in range(100_000)]
    bids = [{"at": n * 10 + 3, "b": n, "item": n * 11 % 1_000} for n in range(len(orders))]
    for name, made in (("orders", orders), ("bids", bids)):
        for part in range(2):
            lines = "".join(json.dumps(row) + "\n" for row in made[part::2])
            (tmp_path / f"{name}{part}.jsonl").write_text(lines)
    shelves = "".join(json.dumps({"shelf": n, "row": n * 3}) + "\n" for n in range(450))
    (tmp_path / "shelves.jsonl").write_text(shelves)
    (tmp_path / "p.yaml").write_text(NEAR)
    params = {"input": str(tmp_path), "output": str(tmp_path / "out")}
    run = Run(tmp_path / "p.yaml", tmp_path, params, launcher).start().until_reading(timeout_s=90)
    killed = run.kill_at_random((victim,), seed=3, times=1, pause_s=(0.05, 0.5))
    found = [json.loads(line) for line in rows(run).elements()]
    assert killed[victim] == 1, run.said
    wanted: Counter[tuple[int, int, int | None]] = Counter()
    for order in orders:
        shelf = order["item"] % 500
        near = range(max(order["n"] - 10, 0), min(order["n"] + 30, len(bids)))
        partners = [bids[b]["b"] for b in near if bids[b]["item"] == order["item"]]
        for b in partners or [-1]:
            wanted[order["n"], b, shelf * 3 if shelf < 450 else None] += 1
    assert wanted == Counter(
        (row["n"], row["b"], (row["shelves"] or {}).get("row")) for row in found
    )


@pytest.mark.parametrize(
    ("table", "broadcast", "copies"),
    [("shelves", "{limit: 50kB}", "false"), ("items", "false", "{limit: 50kB}")],
)
def test_a_table_that_is_too_large_to_be_held_whole_ends_the_run(
    table: str, broadcast: str, copies: str, inputs: Path, tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(written_with(broadcast, copies))
    params = {"input": str(inputs), "output": str(tmp_path / "out")}
    run = Run(tmp_path / "p.yaml", tmp_path, params).start().wait()
    assert run.code not in (0, None), run.said
    assert f"the table {table!r} has more than the 50,000 bytes" in run.said
    assert "leave out broadcast" in run.said


def test_rows_that_change_after_the_start_change_no_result(inputs: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "shelves.db"
    table(ledger, [(n + 1, n, n % 7) for n in range(5_000)])
    (tmp_path / "site").mkdir()
    text = written_with("true")
    files = '{files: {path: "${input}/shelves*.jsonl", format: jsonl}}, table: shelf}'
    text = text.replace(files, f'{{ledger: {{path: "{ledger}"}}}}, table: account}}')
    text = text.replace("shelves: {key: shelf}", "shelves: {key: account}")
    (tmp_path / "p.yaml").write_text(text)
    params = {"input": str(inputs), "output": str(tmp_path / "out")}
    path = (str(installed(tmp_path / "site")), str(PLUGIN / "src"))
    run = Run(tmp_path / "p.yaml", tmp_path, params, path=path).start().until_committed()
    table(ledger, [(n + 1, n, 99) for n in range(4_000)])
    killed = run.kill_at_random((WORKERS,), seed=5, times=2, pause_s=(0.0, 0.5))
    found = [json.loads(line) for line in rows(run)]
    assert killed[WORKERS]
    assert len(found) > ORDERS // 10
    for row in found:
        assert row["shelves"]["amount"] == row["item"] % 5_000 % 7


def table(path: Path, entries: list[tuple[int, int, int]]) -> None:
    """A ledger with these entries alone."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("drop table if exists entries")
        connection.execute("create table entries (id integer primary key, account, amount)")
        connection.executemany("insert into entries values (?, ?, ?)", entries)
