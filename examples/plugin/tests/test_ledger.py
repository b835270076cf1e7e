"""The contract suites, on ledgers."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from millwheel_ledger import build_sink, build_source
from millwheel_ledger.sink import LedgerSink, LedgerTarget, connected

from millwheel.plugins import Sink, Source
from millwheel.testing.contracts import (
    IDENTITY,
    ExternalSinkContract,
    Outside,
    SinkWorld,
    SourceContract,
    WatchedClient,
)


class LedgerWorld(SinkWorld):
    """A ledger of its own for each check."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._path = f"{self._folder.name}/ledger.db"
        LedgerSink(self._path).check(IDENTITY)

    def sink(self, outside: Outside) -> Sink:
        path = self._path

        class Target(LedgerTarget):
            def connect(self) -> Any:
                connection = outside.call("connect", connected, path)
                # no crash here is one of the machine
                connection.execute("pragma synchronous = off")
                return WatchedClient(connection, outside, ["execute"])

        made = LedgerSink(path)
        made.identity = IDENTITY
        made.target = lambda owner: Target(path, owner)  # type: ignore[method-assign]
        return made

    def value(self, batch: int, row: int) -> Any:
        return {"account": f"a{batch}", "amount": row}

    def rows(self) -> list[Any]:
        with closing(connected(self._path)) as connection:
            found = connection.execute("select account, amount from entries order by id").fetchall()
        return [{"account": account, "amount": amount} for account, amount in found]

    def refused(self) -> tuple[Any, str]:
        return {"account": "a0", "amount": None}, "NOT NULL constraint failed: entries.amount"

    def lost(self) -> Exception:
        return sqlite3.OperationalError("disk I/O error")

    def close(self) -> None:
        self._folder.cleanup()


class TestTheSink(ExternalSinkContract):
    every = 2

    def world(self) -> SinkWorld:
        return LedgerWorld()


class TestTheSource(SourceContract):
    @pytest.fixture(autouse=True)
    def _written(self, tmp_path: Path) -> None:
        self._folder = str(tmp_path)
        LedgerSink(f"{tmp_path}/in.db").check(IDENTITY)
        with closing(connected(f"{tmp_path}/in.db")) as connection:
            for number in (3, 4, 9, 10, 20):
                connection.execute("insert into entries values (?, 'a', ?)", (number, number * 2))

    def source(self) -> Source:
        return build_source({"path": "in.db"}, self._folder)

    def values(self) -> list[Any]:
        return [
            {"id": number, "account": "a", "amount": number * 2} for number in (3, 4, 9, 10, 20)
        ]


def test_another_option_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="has the option 'path'"):
        build_sink({"file": "x"}, "/")
