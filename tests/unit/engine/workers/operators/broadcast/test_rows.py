"""The rows of held tables that a root keeps, since their source may have others later: here a
ledger, read by a package of a third party."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from millwheel.connect.own_functions import language_of
from millwheel.control.roots.inputs import keep_inputs
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.engine.workers.operators.broadcast.rows import (
    decode_rows,
    encode_rows,
    missing_rows,
    rows_file,
)
from millwheel.errors import CorruptionError, SetupError
from millwheel.language.spec import load_pipeline
from tests.slow.test_plugin import PLUGIN, installed

PIPELINE = """
pipeline: shop
streams:
  orders: {source: {injection: {}}, timestamp: {field: at, unit: us}}
  accounts: {source: {ledger: {path: in.db}}, table: {key: account, delete: amount < 0}}
  shelves: {source: {files: {path: s.jsonl, format: jsonl}}, table: shelf}
computations:
  small:
    input: {orders: {key: of}, accounts: {key: account}}
    enrich: {with: accounts, broadcast: true}
    output: small
  least:
    input: {orders: {key: to}, accounts: {key: account}}
    enrich: {with: accounts, broadcast: {limit: 1kB}}
    output: least
  shelved:
    input: {orders: {key: to}, shelves: {key: shelf}}
    enrich: {with: shelves, broadcast: true}
    output: shelved
sinks: {small: {stdout: {}}, least: {stdout: {}}, shelved: {stdout: {}}}
"""


def written(path: Path, amounts: list[int]) -> None:
    """Entries of as many accounts as there are, but of two in turn where there are few."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("drop table if exists entries")
        connection.execute("create table entries (id integer primary key, account text, amount)")
        accounts = len(amounts) if len(amounts) > 9 else 2
        rows = [(n, f"a{n % accounts}", amount) for n, amount in enumerate(amounts, 1)]
        connection.executemany("insert into entries values (?, ?, ?)", rows)


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineSpec:
    (tmp_path / "root").mkdir()
    (tmp_path / "site").mkdir()
    for each in (installed(tmp_path / "site"), PLUGIN / "src"):
        monkeypatch.syspath_prepend(str(each))
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "s.jsonl").write_text('{"shelf": 1}\n')
    written(tmp_path / "in.db", [1, 2, 3, 4])
    spec = load_pipeline(tmp_path / "p.yaml")
    keep_inputs(spec, tmp_path / "root")
    return spec


def kept(spec: PipelineSpec, root: Path) -> dict[str, bytes]:
    """What is written into a root, as a driver does."""
    found = dict(missing_rows(spec, root, language_of(spec), print))
    for path, rows in found.items():
        path.write_bytes(rows)
    return {path.name: rows for path, rows in found.items()}


def test_rows_are_read_once_for_a_root(spec: PipelineSpec, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert kept(spec, root).keys() == {"events.accounts.rows"}, "files are read by each worker"
    rows = decode_rows(rows_file(root, "events.accounts").read_bytes())
    assert sorted(bytes(row)[-1] for row in rows.values()) == [3, 4], "the last row of each"
    written(tmp_path / "in.db", [7, 8])
    assert kept(spec, root) == {}, "the root has them"


def test_rows_are_read_up_to_where_the_input_ended(spec: PipelineSpec, tmp_path: Path) -> None:
    written(tmp_path / "in.db", [1, 2, 3, -4, 5, 6])
    [data] = kept(spec, tmp_path / "root").values()
    assert [bytes(row)[-1] for row in decode_rows(data).values()] == [3], "the other one is deleted"
    assert decode_rows(encode_rows(decode_rows(data))) == decode_rows(data)


def test_a_table_may_be_as_large_as_each_enrichment_says(
    spec: PipelineSpec, tmp_path: Path
) -> None:
    written(tmp_path / "in.db", list(range(100)))
    (tmp_path / "root" / "inputs" / "events.accounts.json").unlink()
    keep_inputs(spec, tmp_path / "root")
    with pytest.raises(SetupError, match="the table 'accounts' has more than the 1,000 bytes"):
        kept(spec, tmp_path / "root")


def test_damage_is_told() -> None:
    with pytest.raises(CorruptionError, match="are not the rows of a table"):
        decode_rows(b"\x81\xa1")
