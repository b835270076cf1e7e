"""Sends records from any Python program to a running pipeline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from types import TracebackType
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec

from millwheel.adapters.grpc.injection_client import InjectionClient, InjectionResult, OutsideRecord
from millwheel.adapters.grpc.security import load_security
from millwheel.adapters.ports import Coordination
from millwheel.control.roots.attach import LiveMembers, attach, connected, find_root
from millwheel.control.roots.shipping import load_shipped
from millwheel.core.model.names import NodeName
from millwheel.core.model.range_table import RangeTable
from millwheel.core.pipeline.tables import declared_name, events_of
from millwheel.errors import SetupError
from millwheel.launch.progress.status_watch import addresses
from millwheel.tools.client.inject import SAFE_AGAIN, Injecting, Look

Value: TypeAlias = Any
"""A value that JSON can represent: a dict, a dataclass, a ``msgspec.Struct``; or JSON text as
bytes."""
_encode = msgspec.json.Encoder().encode
_AGAIN = f"{SAFE_AGAIN}; `send` the same records with the same ids"


class Injector:
    """Sends records to one injected stream of a running pipeline. Use it in a ``with`` block.

    ``root`` is the root of the run ("": the only one in ``.millwheel``), ``security`` the folder
    with certificates and token ("": the folder that the run uses). A record that no worker accepts
    within ``patience_s`` is an error. Several threads may send at once.

    Raises SetupError when no run is going on there, or the stream accepts no records from outside.

        with Injector("root", "clicks") as clicks:
            clicks.send([{"page": "a", "ts": 1}, {"page": "b", "ts": 2}])
    """

    def __init__(
        self, root: str, stream: str, *, security: str = "", patience_s: float = 60.0
    ) -> None:
        folder = find_root(root)
        run = attach(folder)
        self._field = id_field(str(folder), stream)
        self._ids = numbered()
        self._lock = threading.Lock()
        with ExitStack() as stack:
            coordination = stack.enter_context(connected(run))
            client = InjectionClient(load_security(security or run.security, "client"))
            stack.callback(client.close)
            self._sending = Injecting(
                stream, client, follow(coordination, stream), patience_s, _AGAIN
            )
            stack.callback(self._sending.close)
            self._stack = stack.pop_all()

    def send(
        self, values: Iterable[Value], ids: Sequence[str] | None = None, *, traceparent: str = ""
    ) -> InjectionResult:
        """Send records. Returns once all of them are durable, with the numbers of accepted records,
        known copies, and dead letters. When an outcome is unknown (a worker died, a shard moved),
        the records are sent again under the same ids, so each counts once.

        ``ids`` has one id for each record. Without it, the id is the value of the stream's ``id``
        field or, if it declares none, a unique number. Blocks while the pipeline exerts
        back-pressure. ``traceparent`` is the trace context of all these records (docs/tracing.md).

        Raises UnavailableError when no worker confirms the records in time: the outcome is unknown,
        and they may be sent again with the same ids. Raises SetupError, before anything is sent, if
        the number of ``ids`` is not that of the records or JSON cannot represent a value; and for a
        record that is too large."""
        lines = [as_json(value) for value in values]
        records = self.records(lines, ids, [traceparent] * len(lines))
        return self._sending.send(records)

    def records(
        self,
        lines: Sequence[bytes],
        ids: Sequence[str] | None = None,
        traces: Sequence[str] | None = None,
    ) -> list[OutsideRecord]:
        """Records made of JSON texts, their ids, and their trace contexts ("" for none). Raises
        SetupError as :meth:`send`."""
        if ids is not None and len(ids) != len(lines):
            raise SetupError(f"{len(lines)} records have {len(ids)} ids; give one for each")
        with self._lock:
            record_ids = [self._id_of(line) for line in lines] if ids is None else list(ids)
        if not all(record_ids):
            raise SetupError("a record has an empty id; give each one a text of its own")
        contexts = [""] * len(lines) if traces is None else traces
        return [OutsideRecord(*parts) for parts in zip(record_ids, lines, contexts, strict=True)]

    def send_records(self, records: Sequence[OutsideRecord]) -> InjectionResult:
        """As :meth:`send`, for records that have their ids."""
        return self._sending.send(records)

    def close(self) -> None:
        """Close the connections."""
        self._stack.close()

    def __enter__(self) -> Injector:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _id_of(self, line: bytes) -> str:
        if not self._field:
            return next(self._ids)
        # An invalid record, or one without the field, gets a number: the pipeline reports why it
        # cannot be used.
        return text_of_field(line, self._field) or next(self._ids)


class AsyncInjector:
    """:class:`Injector` for asyncio: used with ``async with``; its methods are awaited."""

    def __init__(
        self, root: str, stream: str, *, security: str = "", patience_s: float = 60.0
    ) -> None:
        self._make = lambda: Injector(root, stream, security=security, patience_s=patience_s)
        self._injector: Injector | None = None

    async def send(
        self, values: Iterable[Value], ids: Sequence[str] | None = None, *, traceparent: str = ""
    ) -> InjectionResult:
        """See :meth:`Injector.send`. Several may be awaited at once."""
        if self._injector is None:
            raise SetupError("an AsyncInjector sends within `async with` only")
        return await asyncio.to_thread(self._injector.send, values, ids, traceparent=traceparent)

    async def __aenter__(self) -> AsyncInjector:
        self._injector = await asyncio.to_thread(self._make)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._injector is not None:
            await asyncio.to_thread(self._injector.close)


def as_json(value: Value) -> bytes:
    """The value as JSON text. Raises SetupError when JSON cannot represent it."""
    if isinstance(value, bytes):
        return value
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise SetupError(
            f"a record of type {type(value).__name__} cannot be written as JSON: {error}"
        ) from error


def text_of_field(line: bytes, field: str) -> str:
    """The value of a field of a JSON object as an id, "" if it has none."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""
    content = value.get(field) if isinstance(value, dict) else None
    return str(content) if isinstance(content, str | int) and content != "" else ""


def numbered() -> Iterator[str]:
    """Unique ids, different from those of every other program."""
    name = uuid4().hex
    return (f"{name}:{number}" for number in count(1))


def id_field(root: str, stream: str) -> str:
    """The field of the stream's ``id``, "" when it declares none. Raises SetupError unless
    ``stream`` accepts records from outside."""
    # also by the name of the source's own stream, which a table stands behind
    ids = {
        name: s.id
        for s in load_shipped(root).streams
        if s.source is not None and s.source.kind == "injection"
        for name in (declared_name(s.name), s.name)
    }
    if stream not in ids:
        names = (
            f"it accepts {', '.join(dict.fromkeys(map(declared_name, ids)))}"
            if ids
            else "none of its streams has `source: {injection: {}}`"
        )
        raise SetupError(f"The pipeline accepts no injected records for {stream!r}: {names}")
    return ids[stream]


def follow(coordination: Coordination, stream: str) -> Look:
    """A function that returns the current range table of a stream's source, and its workers."""
    workers = LiveMembers(coordination, "workers")
    nodes = [NodeName(f"source.{name}") for name in (stream, events_of(stream))]

    def look() -> tuple[RangeTable | None, Mapping[str, str]]:
        tables = coordination.tables()
        tables_of_nodes = (tables.get(node) for node in nodes)
        return next((each for each in tables_of_nodes if each is not None), None), addresses(
            workers.now()
        )

    return look
