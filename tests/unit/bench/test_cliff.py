"""The ways of ``bench cliff`` are valid pipelines, and its queries find rows that are wrong."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from bench.cliff import STEPS, form_of, pipeline_of

START = 1_767_225_600_000_000
"""A full minute (µs)."""


@pytest.mark.parametrize("name", STEPS)
def test_every_way_is_a_pipeline_whose_form_is_known(tmp_path: Path, name: str) -> None:
    path = tmp_path / "cliff.yaml"
    path.write_text(pipeline_of(name))
    assert form_of(path).startswith("taken in columns")


@pytest.mark.parametrize(("n", "spend", "wrong"), [(2, 1.0, 0), (3, 1.0, 1), (2, 1.5, 1)])
def test_a_wrong_row_is_found(n: int, spend: float, wrong: int) -> None:
    assert (
        _wrong(
            "plain", f"select 7 as client_id, {START} as window_start, {n} as n, {spend} as spend"
        )
        == wrong
    )


def test_a_missing_row_and_a_surplus_one_are_found() -> None:
    good = f"select 7 as client_id, {START} as window_start, 2 as n, 1.0 as spend"
    assert _wrong("plain", f"{good} where false") == 1
    assert _wrong("plain", f"{good} union all select 8, {START}, 2, 1.0") == 1


@pytest.mark.parametrize(("at", "wrong"), [(3, 0), (2, 1)])
def test_an_old_version_is_found(at: int, wrong: int) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "create view records as select 7 as client_id, i * 1000 as t, 'e' || i as event_id"
            " from range(4) as r(i)"
        )
        connection.execute(
            "create view rows as select 'e' || i as event_id,"
            f" {{'ts': if(i = 3, {at}, i)}} as others from range(4) as r(i)"
        )
        found = connection.execute(STEPS["`enrich`, as of its time"].query).fetchall()
    assert found == [(wrong,)]


def test_key_windows_need_a_row_for_each_change() -> None:
    rows = [
        f"select 7 as client_id, {START + 10_000_000} as window_end, 2 as n, 1.0 as spend",
        f"select 7, {START + 70_000_000}, 0, 0.0",
    ]
    assert _wrong("key windows, 1m every 10s", " union all ".join(rows)) == 0
    assert _wrong("key windows, 1m every 10s", rows[0]) == 1
    assert (
        _wrong("key windows, 1m every 10s", rows[0].replace("1.0", "2.0") + " union all " + rows[1])
        == 1
    )


def _wrong(name: str, rows: str) -> int:
    """Of two records of one client, half a euro each."""
    with duckdb.connect() as connection:
        connection.execute(
            f"create view records as select 7 as client_id, {START} + i as t, 0.5 as cost from"
            " range(2) as r(i)"
        )
        connection.execute(f"create view rows as {rows}")
        return int(connection.execute(STEPS[name].query).fetchall()[0][0])
