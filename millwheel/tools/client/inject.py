"""``millwheel inject``: records from a file or a pipe into a running pipeline.

A record goes to the shard that owns the hash of its id, and is accepted once the worker has made it
durable. When the outcome is unknown (the shard moved, the worker died), it is sent again under the
same id, and the pipeline drops copies. The id of a record is one of its fields or, for streams
without such a field, the name of the input and the line number: two lines with equal contents may
be two records.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, Protocol
from uuid import uuid4

import msgspec

from millwheel.adapters.grpc.injection_client import InjectionResult, OutsideRecord
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.keys import key_hash
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.errors import SetupError, UnavailableError

BATCH_RECORDS = 2_000  # records in one request
BATCH_BYTES = 4_000_000  # of a request, well below the limit of a message
_READ_BYTES = 1 << 20  # of one read of the input
_PATIENCE_S = 60.0  # until a shard must be served again
_RETRY_S = 0.1  # before records are sent again
_PARALLEL = 8  # requests at once: others travel while one is committed


class Client(Protocol):
    """Sends a batch to a worker; see
    :class:`millwheel.adapters.grpc.injection_client.InjectionClient`."""

    def inject(
        self, address: str, stream: str, shard: str, records: Sequence[OutsideRecord]
    ) -> InjectionResult: ...


Look = Callable[[], tuple[RangeTable | None, Mapping[str, str]]]
"""Returns the current range table of the source, and the addresses of the workers."""


def line_batches(file: BinaryIO) -> Iterator[list[bytes]]:
    """Batches of lines, without line ends and empty lines. From a pipe, a batch has the lines that
    have arrived."""
    read = file.read1 if isinstance(file, io.BufferedIOBase) else file.read
    rest = b""
    while data := read(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if whole := [line for line in map(bytes.strip, lines) if line]:
            yield whole
    if rest.strip():
        yield [rest.strip()]


class Identified:
    """Assigns ids to the records of one input: the value of ``field``, or "NAME:NUMBER" with the
    line number, from 1, when ``field`` is "". The same ``name`` gives the same input the same ids;
    the default is unique.

    A line whose field cannot be read also gets a number; the worker reports why it is not a record.
    """

    def __init__(self, field: str, name: str = "") -> None:
        self._field = field
        self._name = name or uuid4().hex
        self._lines = 0

    def records(self, lines: Iterable[bytes]) -> list[OutsideRecord]:
        """The next lines of the input as records."""
        return [OutsideRecord(self._next_id(line), line) for line in lines]

    def _next_id(self, line: bytes) -> str:
        self._lines += 1
        record_id = _field_of(line, self._field) if self._field else None
        return f"{self._name}:{self._lines}" if record_id is None else record_id


def _field_of(line: bytes, field: str) -> str | None:
    try:
        value = msgspec.json.decode(line)
    except DAMAGE:
        return None
    content = value.get(field) if isinstance(value, dict) else None
    return str(content) if isinstance(content, str | int) and content != "" else None


SAFE_AGAIN = (
    "injecting the same input again is safe: records accepted before are dropped by their ids"
)
DOUBLES_AGAIN = (
    "part of the input may have been accepted, and its records have no ids by which copies are"
    " recognized: injecting it again would double that part. Inputs that are injected with --name"
    " can be repeated under the same name"
)


class Injecting:
    """Sends batches until each is durable. ``again`` is a sentence for errors about the effect of
    injecting the same input once more."""

    def __init__(
        self,
        stream: str,
        client: Client,
        look: Look,
        patience_s: float = _PATIENCE_S,
        again: str = SAFE_AGAIN,
    ) -> None:
        self._stream = stream
        self._again = again
        self._client = client
        self._look = look
        self._patience_s = patience_s
        self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="inject")
        self._table, self._addresses = look()

    def send(self, records: Sequence[OutsideRecord]) -> InjectionResult:
        """All of ``records``, in order within a shard. Raises UnavailableError when no worker
        accepts them in time."""
        done = InjectionResult()
        for start in range(0, len(records), BATCH_RECORDS):
            done += self._send_batch(records[start : start + BATCH_RECORDS])
        return done

    def close(self) -> None:
        """Close the connections. Nothing can be sent afterwards."""
        self._pool.shutdown()

    def _send_batch(self, records: Sequence[OutsideRecord]) -> InjectionResult:
        done, remaining, deadline_s = (
            InjectionResult(),
            list(records),
            time.monotonic() + self._patience_s,
        )
        while True:
            answers = list(self._pool.map(self._send_part, self._route(remaining)))
            done = sum((result for result, _ in answers), done)
            remaining = [record for _, unsent in answers for record in unsent]
            if not remaining:
                return done
            self._wait(deadline_s, len(remaining))

    def _route(
        self, records: Sequence[OutsideRecord]
    ) -> list[tuple[ShardEntry | None, list[OutsideRecord]]]:
        """Records by the shard that owns their id, each part in order."""
        parts: dict[str, tuple[ShardEntry | None, list[OutsideRecord]]] = {}
        for record in records:
            entry = self._owner(record.id)
            parts.setdefault(entry.shard if entry else "", (entry, []))[1].append(record)
        return list(parts.values())

    def _owner(self, record_id: str) -> ShardEntry | None:
        position = key_hash(record_id)
        shards = self._table.shards if self._table else ()
        return next((entry for entry in shards if position in entry.range), None)

    def _send_part(
        self, part: tuple[ShardEntry | None, list[OutsideRecord]]
    ) -> tuple[InjectionResult, list[OutsideRecord]]:
        """The result for the records of one shard, and the records to send again."""
        entry, records = part
        address = self._addresses.get(entry.owner) if entry else None
        if entry is None or address is None:
            return InjectionResult(), records
        done, sent = InjectionResult(), 0
        for piece in _pieces(records):
            try:
                result = self._client.inject(address, self._stream, entry.shard, piece)
            except UnavailableError:
                break
            if result.moved:
                break
            done, sent = done + result, sent + len(piece)
        return done, records[sent:]

    def _wait(self, deadline_s: float, remaining: int) -> None:
        if time.monotonic() > deadline_s:
            raise UnavailableError(
                f"No worker accepted {remaining:,} records of {self._stream!r} within"
                f" {self._patience_s:.0f} s. Look at `millwheel status`; {self._again}"
            )
        time.sleep(_RETRY_S)
        self._table, self._addresses = self._look()


def _pieces(records: list[OutsideRecord]) -> Iterator[list[OutsideRecord]]:
    piece: list[OutsideRecord] = []
    size = 0
    for record in records:
        if len(record.value) > BATCH_BYTES:
            raise SetupError(
                f"A record of {len(record.value):,} bytes is too large; at most {BATCH_BYTES:,} are"
                " taken"
            )
        if piece and size + len(record.value) > BATCH_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(record)
        size += len(record.value)
    if piece:
        yield piece
