"""Each class of errors at each call of each client, as its table says: what passes is waited for,
what a row causes is a letter of exactly that row, what a person must mend stops the run, and what
nobody knows is tried a few times only.

``tests/slow/test_postgres_sink.py`` does the same with a real server of PostgreSQL.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.connectors.external import absence
from millwheel.connect.connectors.external.meanings import MOST_TRIES
from millwheel.connect.connectors.external.sink import ExternalWriter
from millwheel.connect.connectors.external.target import Owner
from millwheel.connect.connectors.kafka.client import Complaints
from millwheel.connect.connectors.kafka.sink import KafkaWriter
from millwheel.connect.connectors.kafka.sink_options import KafkaSinkOptions
from millwheel.connect.connectors.redis.operations import RedisRows
from millwheel.connect.connectors.redis.sink import _FENCE, RedisTarget
from millwheel.connect.connectors.redis.sink_options import RedisSinkOptions
from millwheel.connect.connectors.tables import delta
from millwheel.connect.connectors.tables.committer import Committer
from millwheel.connect.connectors.tables.sink import TableSink, TableSinkOptions
from millwheel.connect.sinks.base import (
    BatchRefusedError,
    BatchSplitError,
    SinkBatch,
    SinkRecord,
    Writer,
)
from millwheel.errors import SetupError, UnavailableError
from tests.fakes.kafka_transactions import Failure, FakeBrokers, KafkaException
from tests.fakes.lake_tables import SCHEMA
from tests.fakes.memory_target import MemoryTarget, Table

BAD = 17


class PanicException(BaseException):
    """As pyo3's, which is not an Exception."""


class Client:
    """Asks ``trouble`` before each call; ``calls`` are their names."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.trouble: Callable[[str, Any], BaseException | None] = lambda call, words: None

    def called(self, call: str, words: Any = ()) -> None:
        self.calls.append(call)
        error = self.trouble(call, words)
        if error is not None:
            raise error


@dataclass
class World:
    """A target; ``writer(token)`` is a new owner of its shard, ``rows`` the numbers that a reader
    sees. ``absent``, ``mend`` and ``rows_error`` are errors of its client."""

    client: Client
    writer: Callable[[int], Writer]
    rows: Callable[[], list[int]]
    absent: list[BaseException]
    mend: list[BaseException]
    of_rows: list[BaseException]
    unknown: list[BaseException]
    sends: str
    """The call that carries rows."""
    holds_bad: Callable[[Any], bool]
    """Whether the words of that call hold the row :data:`BAD`."""


UNKNOWN: list[BaseException] = [
    RuntimeError("odd"),
    KeyError("odd"),
    PanicException("index out of bounds"),
]


def memory(folder: Path, patch: pytest.MonkeyPatch) -> World:
    client, table = Client(), Table()

    class Target(MemoryTarget):
        def fence(self) -> int:
            client.called("fence")
            return super().fence()

        def write(self, number: int, records: Any) -> None:
            client.called("write", records)
            super().write(number, [SinkRecord(None, record.value["n"], 0) for record in records])

    def writer(token: int) -> Writer:
        back_off = absence.BackOff(0.0)
        return ExternalWriter(
            Target(table, Owner("root/s", token)),
            "s",
            absence.absence_of("memory"),
            back_off,
            "memory",
        )

    return World(
        client,
        writer,
        lambda: list(table.rows),
        [ConnectionResetError("gone"), TimeoutError(), OSError(errno.ENOSPC, "no space")],
        [PermissionError(errno.EACCES, "denied"), OSError(errno.EROFS, "read-only")],
        [ValueError("odd"), OverflowError("odd"), RecursionError("deep")],
        UNKNOWN,
        "write",
        lambda records: any(record.value["n"] == BAD for record in records),
    )


def redis(folder: Path, patch: pytest.MonkeyPatch) -> World:
    from redis import exceptions

    client, stored, mark = Client(), {}, {"token": -1, "number": -1}  # type: ignore[var-annotated]

    class Server:
        def eval(self, script: str, keys: int, *words: Any) -> Any:
            client.called("fence" if script == _FENCE else "write", words[:keys])
            token = int(words[keys])
            if script == _FENCE:
                mark["token"] = max(mark["token"], token)
                return [mark["token"], mark["number"]]
            if token != mark["token"]:
                return ["fenced", mark["token"]]
            if int(words[keys + 1]) > mark["number"]:
                for key in words[1:keys]:
                    assert key not in stored, "a row is written once"
                    stored[key] = True
                mark["number"] = int(words[keys + 1])
            return ["written"]

        def close(self) -> None: ...

    rows = RedisRows(RedisSinkOptions("redis://h", "row:{n}"))

    def writer(token: int) -> Writer:
        target = RedisTarget(Server, rows, Owner("root/s", token), "marks:", "Redis at h")
        return ExternalWriter(
            target, "s", absence.absence_of("redis"), absence.BackOff(0.0), "Redis at h"
        )

    return World(
        client,
        writer,
        lambda: sorted(int(key.partition(":")[2]) for key in stored),
        [exceptions.ConnectionError("gone"), exceptions.TimeoutError(),
        exceptions.BusyLoadingError("LOADING"),
         exceptions.ReadOnlyError("READONLY"), exceptions.ResponseError("MISCONF disk"),
         exceptions.OutOfMemoryError("OOM")],
        [exceptions.AuthenticationError("WRONGPASS"), exceptions.NoPermissionError("NOPERM"),
         exceptions.ResponseError("CROSSSLOT")],
        [exceptions.DataError("cannot encode"), exceptions.ResponseError("WRONGTYPE"),
        UnicodeError("odd")],
        [*UNKNOWN, exceptions.ResponseError("ERR who knows")],
        "write",
        lambda keys: f"row:{BAD}" in keys,
    )  # fmt: skip


def kafka(folder: Path, patch: pytest.MonkeyPatch) -> World:
    client, brokers = Client(), FakeBrokers()
    for module in ("transactions", "marks"):
        patch.setattr(f"millwheel.connect.connectors.kafka.{module}.library", lambda: brokers)
    sent: list[int] = []
    plain = brokers.called

    def called(name: str) -> None:
        if name == "begin_transaction":
            sent.clear()
        if name != "commit_transaction answered":
            client.called(name, tuple(sent))
        plain(name)

    patch.setattr(brokers, "called", called)
    from tests.fakes import kafka_transactions

    produce = kafka_transactions.FakeProducer.produce

    def noted(self: Any, topic: str, on_delivery: Any = None, **given: Any) -> None:
        if topic == "out":
            sent.append(int(given["value"].partition(b":")[2].rstrip(b"}")))
        produce(self, topic, on_delivery, **given)

    patch.setattr(kafka_transactions.FakeProducer, "produce", noted)

    def failure(*names: str) -> list[BaseException]:
        return [KafkaException(Failure(name)) for name in names]

    return World(
        client,
        lambda token: KafkaWriter(
            KafkaSinkOptions(brokers="b:1", topic="out"), "root/s", token, Complaints("b:1")
        ),
        lambda: [int(row["value"].partition(b":")[2].rstrip(b"}")) for row in brokers.of("out")],
        failure(
            "_TRANSPORT",
            "_TIMED_OUT",
            "NOT_ENOUGH_REPLICAS",
            "COORDINATOR_NOT_AVAILABLE",
            "INVALID_PRODUCER_EPOCH",
        ),
        failure("TOPIC_AUTHORIZATION_FAILED", "SASL_AUTHENTICATION_FAILED", "_UNKNOWN_TOPIC"),
        [ValueError("odd"), *failure("_INCONSISTENT")],
        [*UNKNOWN, *failure("UNKNOWN", "_FAIL")],
        "commit_transaction",
        lambda numbers: BAD in numbers,
    )


def lake(folder: Path, patch: pytest.MonkeyPatch) -> World:
    lake_library = pytest.importorskip("deltalake")
    client = Client()

    class Library:
        def __getattr__(self, name: str) -> Any:
            return getattr(lake_library, name)

        def DeltaTable(self, *words: Any, **named: Any) -> Any:
            client.called("look")
            return lake_library.DeltaTable(*words, **named)

        def write_deltalake(self, table: Any, rows: Any, **named: Any) -> Any:
            client.called("commit", rows["row"].to_pylist())
            return lake_library.write_deltalake(table, rows, **named)

    table = delta.DeltaLakeTable(str(folder / "table"), {})
    table.create(SCHEMA)
    patch.setattr(delta, "library", Library)

    def writer(token: int) -> Writer:
        sink = TableSink(TableSinkOptions(), table)
        sink.identity, sink.committer, sink.longest_wait_s = (
            "root",
            Committer(table, lambda _: None),
            0.0,
        )
        return sink.open("s", token)

    def rows() -> list[int]:
        found = lake_library.DeltaTable(str(folder / "table")).to_pyarrow_table()
        return sorted(found["row"].to_pylist())

    made: Any = lake_library.exceptions
    return World(
        client,
        writer,
        rows,
        [
            OSError("Generic S3 error: client error (Connect)"),
            ConnectionError(),
            made.DeltaError("Generic GCS error"),
        ],
        [
            PermissionError("no"),
            made.SchemaMismatchError("odd"),
            OSError("Generic S3 error: 403 Forbidden"),
        ],
        [ValueError("odd"), made.DeltaError("Invalid data found: 1 rows failed validation check")],
        [*UNKNOWN, made.DeltaError("Kernel error")],
        "commit",
        lambda numbers: BAD in numbers,
    )


WORLDS = {"memory": memory, "redis": redis, "kafka": kafka, "delta": lake}


@contextmanager
def world(name: str, folder: Path) -> Iterator[World]:
    absence.forget()
    with pytest.MonkeyPatch.context() as patch:
        yield WORLDS[name](folder, patch)


def value(name: str, number: int) -> dict[str, int]:
    return {"batch": 0, "row": number} if name == "delta" else {"n": number}


class Run:
    """The runtime, as far as a sink notices: it publishes in order, and again, and commits refusals
    and parts."""

    def __init__(self, name: str, made: World, batches: list[list[int]]) -> None:
        self._made, self.tries = made, 0
        self.letters: list[int] = []
        writer = made.writer(1)
        self._waiting = []
        for number, rows in enumerate(batches):
            records = [SinkRecord("k", value(name, row), 0) for row in rows]
            self._waiting.append(writer.prepare(SinkBatch(number, f"1-{number}", records)))
            assert not writer.take_refused()
        self._writer, self._number = writer, 0

    def successor(self, token: int) -> None:
        self._writer = self._made.writer(token)

    def publish(self) -> None:
        """Until everything is published. Raises what ends the run."""
        while self._waiting:
            self.tries += 1
            assert self.tries < 400, "it is tried for ever"
            try:
                self._writer.publish(self._waiting[0])
            except UnavailableError:
                continue
            except BatchRefusedError as ex:
                self.letters += [next(reversed(each.record.value.values())) for each in ex.refused]
                self._waiting[0] = ex.committable
            except BatchSplitError as ex:
                self._waiting[:1] = ex.parts
                self._waiting[2:] = [
                    self._writer.renumbered(each, self._number + 2 + at)
                    for at, each in enumerate(self._waiting[2:])
                ]
            else:
                self._waiting.pop(0)
                self._number += 1


BATCHES = [[1, 2, 3], [4, BAD, 5, 6], [7]]
ALL = sorted(row for batch in BATCHES for row in batch)


def calls_of(name: str, folder: Path) -> list[str]:
    with world(name, folder) as made:
        Run(name, made, BATCHES).publish()
        assert sorted(made.rows()) == ALL
        return made.client.calls


def once(at: int, error: BaseException, client: Client) -> None:
    def trouble(call: str, words: Any) -> BaseException | None:
        return error if len(client.calls) == at + 1 else None

    client.trouble = trouble


def points(name: str, folder: Path) -> list[int]:
    """One call of each name before the first row, and one behind it."""
    calls = calls_of(name, folder)
    found: dict[tuple[str, bool], int] = {}
    begun = False
    for index, call in enumerate(calls):
        found.setdefault((call, begun), index)
        begun = begun or call.startswith(("write", "commit"))
    return list(found.values())


def each(folder: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        (folder / str(number)).mkdir()
        yield folder / str(number)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("kind", ["absent", "unknown"])
def test_what_fails_once_is_tried_again_and_every_row_is_there_once(
    name: str, kind: str, tmp_path: Path
) -> None:
    folders = each(tmp_path)
    for at in points(name, next(folders)):
        with world(name, next(folders)) as made:
            errors = getattr(made, kind)
        for index in range(len(errors) if name != "delta" else 2):
            with world(name, next(folders)) as made:
                run = Run(name, made, BATCHES)
                once(at, getattr(made, kind)[index], made.client)
                run.publish()
                assert (sorted(made.rows()), run.letters) == (
                    ALL,
                    [],
                ), f"{errors[index]!r} at call {at}"


@pytest.mark.parametrize("name", WORLDS)
def test_what_a_person_must_mend_stops_the_run_at_once_and_nothing_is_lost(
    name: str, tmp_path: Path
) -> None:
    folders = each(tmp_path)
    for at in points(name, next(folders)):
        with world(name, next(folders)) as made:
            count = len(made.mend)
        for index in range(count if name != "delta" else 1):
            with world(name, next(folders)) as made:
                run = Run(name, made, BATCHES)
                error = made.mend[index]
                once(at, error, made.client)
                with pytest.raises(SetupError, match="Nothing is lost"):
                    run.publish()
                run.successor(2)
                run.publish()
                assert (sorted(made.rows()), run.letters) == (ALL, []), f"{error!r} at call {at}"


@pytest.mark.parametrize("name", WORLDS)
def test_a_row_to_blame_is_one_letter_and_every_other_row_is_there_once(
    name: str, tmp_path: Path
) -> None:
    folders = each(tmp_path)
    with world(name, next(folders)) as made:
        count = len(made.of_rows) + len(made.unknown)
    for index in range(count):
        with world(name, next(folders)) as made:
            run = Run(name, made, BATCHES)
            error = [*made.of_rows, *made.unknown][index]
            made.client.trouble = refuses(made, error)
            run.publish()
            assert (sorted(made.rows()), run.letters) == (
                [row for row in ALL if row != BAD],
                [BAD],
            ), f"{error!r}"


def refuses(made: World, error: BaseException) -> Callable[[str, Any], BaseException | None]:
    return lambda call, words: error if call == made.sends and made.holds_bad(words) else None


@pytest.mark.parametrize("name", WORLDS)
def test_what_nobody_knows_and_never_passes_stops_the_run_within_a_few_tries(
    name: str, tmp_path: Path
) -> None:
    folders = each(tmp_path)
    for at in points(name, next(folders)):
        with world(name, next(folders)) as made:
            run = Run(name, made, BATCHES)
            made.client.trouble = always(at, made)
            with pytest.raises(SetupError, match="Nothing is lost"):
                run.publish()
            assert run.tries <= 12 * MOST_TRIES
            made.client.trouble = lambda call, words: None
            run.successor(2)
            run.publish()
            assert sorted([*made.rows(), *run.letters]) == ALL


def always(at: int, made: World) -> Callable[[str, Any], BaseException | None]:
    def trouble(call: str, words: Any) -> BaseException | None:
        return made.unknown[-1] if len(made.client.calls) > at else None

    return trouble
