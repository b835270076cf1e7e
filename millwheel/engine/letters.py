"""Dead letters in files: read, grouped, and selected for a retry; and their retries: requested by a
person, bound by the driver, applied by workers."""

from __future__ import annotations

import fcntl
import secrets
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from millwheel.adapters.rights import lock_file
from millwheel.adapters.spaces.object_address import local_path
from millwheel.adapters.spaces.root_notes import ReplayOrders
from millwheel.connect.own_functions import language_of
from millwheel.connect.python_objects import load_object
from millwheel.connect.sources.base import Chunk, Reject
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.failures import kind_of
from millwheel.core.model.names import NodeName
from millwheel.core.model.records import Batch, DeadLetter
from millwheel.core.pipeline.graph import ClusterView, Graph, build_graph
from millwheel.core.pipeline.replays import (
    KEY,
    LINE,
    RECORD,
    Again,
    Past,
    ReplayOrder,
    Request,
    RequestedLetter,
    as_key,
)
from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.engine.workers.delivery.instances import AnyInstances
from millwheel.engine.workers.delivery.timestamps import TimesOf, Timestamps
from millwheel.engine.workers.sources.sorting import Sorting
from millwheel.engine.workers.sources.source_parts import SourceParts
from millwheel.errors import CorruptionError, SetupError
from millwheel.language.spec.key_extractors import load_extractor


class Letter(msgspec.Struct):
    """A dead letter. ``id`` names its file and line, which never change; ``written_s`` is when that
    file was written."""

    computation: str
    reason: str
    stream: str = ""
    key: Any = None
    value: Any = None
    timestamp: int | None = None
    exception: str = ""
    location: str = ""
    attempts: int = 0
    position: str = ""
    error: str = ""
    what: str = ""
    raw: str = ""
    history: list[Past] = []
    id: str = ""
    written_s: float = 0.0

    @property
    def kind(self) -> str:
        """The kind under which it is counted."""
        return kind_of(self.error, self.location, self.reason)

    @property
    def again(self) -> str:
        """The part of it that can be tried again ("": none)."""
        if self.what == RECORD and self.stream and self.timestamp is not None:
            return RECORD
        if self.what.startswith("key of ") and self.timestamp is not None:
            return KEY
        return LINE if self.what == LINE and self.computation.startswith("source.") else ""

    def requested(self) -> RequestedLetter:
        """The letter in the form in which a request names it."""
        key, value = (
            msgspec.msgpack.decode(b64decode(self.raw)) if self.raw else (self.key, self.value)
        )
        history = [*self.history, Past(self.reason, self.attempts, self.id)]
        return RequestedLetter(
            self.id, self.computation, self.stream, self.again, key, self.timestamp, value, history
        )

    def matches(self, computation: str, reason: str) -> bool:
        """Whether it is a letter of ``computation`` ("": of any) with ``reason`` in its reason or
        kind."""
        if computation and self.computation not in (computation, f"source.{computation}"):
            return False
        return reason in self.reason or reason in self.kind


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Letters of one computation and kind: how many, for how many of them a retry was requested,
    when the first and the last were written (s since 1970), and one example."""

    computation: str
    kind: str
    count: int
    replayed: int
    first_s: float
    last_s: float
    example: Letter


def letters_folder(spec: PipelineSpec, root: Path) -> Path:
    """The folder of a pipeline's letters. Raises SetupError when they are not in files that can be
    read back."""
    sink = next((sink for sink in spec.sinks if sink.stream == DEAD_LETTERS), None)
    if sink is None:
        return root / DEAD_LETTERS
    if sink.kind != "files" or sink.options.get("format", "jsonl") != "jsonl":
        raise SetupError(
            f"The dead letters of {spec.name} go to a sink of the kind {sink.kind!r}, whose results"
            " cannot be read back: use the default sink, or {files: {format: jsonl}}"
        )
    path = local_path(str(sink.options["path"]))
    if "://" in path or sink.options.get("partition_by"):
        raise SetupError(
            f"The dead letters of {spec.name} go to {path}, from where they cannot be read back:"
            " use a plain folder"
        )
    return Path(spec.folder, path)


def replayable(row: Any, name: str) -> Letter:
    """A row as the letter that would be read from a file."""
    letter = msgspec.json.decode(msgspec.json.encode(row), type=Letter)
    letter.id = name
    return letter


def read_letters(folder: Path) -> Iterator[Letter]:
    """All letters that are visible, in the order of their files."""
    for path in sorted(folder.glob("*.jsonl")):
        written_s = path.stat().st_mtime
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                letter = msgspec.json.decode(line, type=Letter)
            except DAMAGE as error:
                raise CorruptionError(f"{path}:{number} is not a dead letter: {error}") from error
            letter.id, letter.written_s = f"{path.name}:{number}", written_s
            yield letter


def grouped(letters: Iterable[Letter], requested_ids: frozenset[str]) -> list[LetterGroup]:
    """Letters by computation and kind, the largest groups first. ``requested_ids`` are those of
    letters whose retry was requested."""
    by_kind: dict[tuple[str, str], list[Letter]] = {}
    for letter in letters:
        by_kind.setdefault((letter.computation, letter.kind), []).append(letter)
    groups = [
        LetterGroup(
            computation,
            kind,
            len(members),
            sum(letter.id in requested_ids for letter in members),
            min(letter.written_s for letter in members),
            max(letter.written_s for letter in members),
            members[0],
        )
        for (computation, kind), members in by_kind.items()
    ]
    return sorted(groups, key=lambda group: (-group.count, group.computation, group.kind))


_LETTERS = 5_000
"""The most letters in one request."""
_EVER = -(2**63)  # Fixed: nothing is late


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Let only one person at a time choose letters."""
    (root / "replay").mkdir(exist_ok=True)
    with lock_file(root / "replay" / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def asked_for(orders: ReplayOrders) -> frozenset[str]:
    """The ids of all letters whose retry was ever requested."""
    return frozenset(
        requested.letter for request in orders.requests().values() for requested in request.wanted
    )


def ask(root: Path, orders: ReplayOrders, letters: list[Letter], limit: int | None) -> int:
    """Request a retry of the letters that can be retried and were never requested before; returns
    their number. Each letter is requested only once, even if this process is killed on the way."""
    with _alone(root):
        requests = orders.requests()
        requested_ids = asked_for(orders)
        chosen = [letter for letter in letters if letter.again and letter.id not in requested_ids][
            :limit
        ]
        number = max(requests, default=0) + 1
        for first in range(0, len(chosen), _LETTERS):
            piece = [letter.requested() for letter in chosen[first : first + _LETTERS]]
            while not orders.request(number, Request(secrets.token_hex(8), piece)):
                number += 1
        return len(chosen)


class Binding:
    """Turns requests into orders. The pipeline's code adds the missing keys, times and values."""

    def __init__(self, spec: PipelineSpec) -> None:
        self._spec = spec
        self._graph = build_graph(spec)
        language = language_of(spec)
        self._fanout = Fanout(
            self._graph,
            lambda key: load_extractor(key, spec.folder, language),
            most_key=spec.limits.key,
            language=language,
        )

    def order(self, request: Request) -> ReplayOrder:
        """The order that carries out a request."""
        records = [again for requested in request.wanted for again in self._records(requested)]
        return ReplayOrder(request.id, records)

    def _records(self, requested: RequestedLetter) -> list[Again]:
        if requested.node not in self._graph.nodes:
            return []
        if requested.what == RECORD:
            return [
                self._again(
                    requested,
                    requested.node,
                    as_key(requested.key),
                    requested.timestamp or 0,
                    requested.value,
                )
            ]
        if requested.what == KEY:
            return self._keyed(requested)
        return self._line(requested)

    def _again(
        self,
        requested: RequestedLetter,
        node: str,
        key: Any,
        at: int,
        value: Any,
        problem: str = "",
    ) -> Again:
        return Again(
            requested.letter, node, requested.stream, key, at, value, requested.history, problem
        )

    def _keyed(self, requested: RequestedLetter) -> list[Again]:
        """The order for a record that had no key for one consumer."""
        at = requested.timestamp or 0
        batch = Batch(requested.stream, [1], [at], [requested.letter], [requested.value])
        batches, keyless = self._fanout.split(batch, [requested.value], epochs=AnyInstances())
        for node, part in batches:
            if node == requested.node:
                return [self._again(requested, node, part.keys[0], at, requested.value)]
        problem = next(
            (each.reason for each in keyless if each.node == requested.node),
            "no node consumes it any more",
        )
        return [
            self._again(requested, requested.node, requested.letter, at, requested.value, problem)
        ]

    def _line(self, requested: RequestedLetter) -> list[Again]:
        """The order for a source's line that was not a record: one part for each consumer of its
        stream."""
        stream = self._spec.stream(requested.stream)
        schema = load_object(stream.schema, self._spec.folder) if stream.schema else None
        function = (
            load_object(stream.timestamp, self._spec.folder) if ":" in stream.timestamp else None
        )
        parts = SourceParts(
            pipeline=self._spec.name,
            node=NodeName(requested.node),
            stream=replace(stream, max_future_us=None),
            source=None,  # type: ignore[arg-type]  # this source is never read
            partitions=list,
            mine=bool,
            fanout=self._fanout,
            timestamps=Timestamps(stream, function, stream.states_unit),
            limits=self._spec.limits,
        )
        at = requested.timestamp or 0
        times: TimesOf | None = (
            (lambda positions: [at] * len(positions)) if stream.arrival else None
        )
        sorting = Sorting(parts, _EVER, set(), 0, AnyInstances(), times=times)
        outcome = sorting.sort(
            requested.letter, _read(requested.value, schema, {**stream.times, **stream.decimals})
        )
        records = [
            self._again(
                requested,
                node,
                batch.rows().keys[0],
                batch.rows().timestamps[0],
                _plain(batch.rows().values[0]),
            )
            for node, batch in outcome.batches
        ]
        return records + [self._unusable(requested, letter) for letter in sorting.letters]

    def _unusable(self, requested: RequestedLetter, letter: DeadLetter) -> Again:
        """The order for a letter that still cannot be used. A source takes no records, so a
        consumer of its stream reports it."""
        consumers = self._graph.consumers.get(requested.stream, ())
        if letter.computation in consumers:
            at = letter.timestamp or 0
            return self._again(
                requested,
                letter.computation,
                requested.letter,
                at,
                _plain(letter.value),
                letter.reason,
            )
        node = next(iter(consumers), requested.node)
        return Again(
            requested.letter,
            node,
            requested.stream,
            requested.letter,
            0,
            requested.value,
            requested.history,
            letter.reason,
            requested.node,
        )


def _read(value: Any, schema: Any, times: Mapping[str, str]) -> Chunk:
    """Read a line, or a record that was read from one, as the source would; ``times`` are the
    fields that are timestamps or decimals."""
    try:
        kind = Any if schema is None else schema
        record: Any = (
            (_exactly if FieldTypes(times).decimals else msgspec.json.decode)(value, type=kind)
            if isinstance(value, str)
            else msgspec.convert(value, kind)
        )
        if schema is None and not isinstance(record, dict):
            raise msgspec.ValidationError(f"a record is a map, not {type(record).__name__}")
    except (msgspec.MsgspecError, ValueError) as ex:
        return Chunk([], [], 1, [Reject(1, value, f"still not a record: {ex}")], finished=True)
    # the numbers of a record that was read are µs, or units, already
    written = times if isinstance(value, str) else _texts_in(record, times)
    if wrong := FieldTypes(written).check([record]) if written else {}:
        return Chunk(
            [], [], 1, [Reject(1, value, f"still not a record: {wrong[0]}")], finished=True
        )
    return Chunk([1], [record], 1, finished=True)


def _exactly(value: str, type: Any) -> Any:
    return msgspec.json.Decoder(type, float_hook=Decimal).decode(value)


def _texts_in(record: Any, times: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for name, kind in times.items() if isinstance(record.get(name), str)}


def _plain(value: Any) -> Any:
    return msgspec.msgpack.decode(encode_value(value))


@dataclass(slots=True)
class Replays:
    """The replays of a root, managed by its driver."""

    orders: ReplayOrders
    spec: PipelineSpec
    graph: Graph
    open: dict[int, ReplayOrder] = field(default_factory=dict)

    def bind(self) -> None:
        """Turn new requests into orders."""
        requests = self.orders.unbound()
        binding = Binding(self.spec) if requests else None
        for number, request in requests.items():
            assert binding is not None
            self.orders.bind(number, binding.order(request))
        self.open.update(self.orders.undone(frozenset(self.open)))

    def settle(self, view: ClusterView | None) -> None:
        """Note the orders that are applied completely, according to the counters of the shards."""
        for number, order in list(self.open.items()):
            applied = (
                sum(node.counters.get(order.counter, 0) for node in view.nodes.values())
                if view
                else 0
            )
            if applied >= len(order.records):
                self.orders.finish(number)
                del self.open[number]

    def left(self) -> int:
        """The number of records in open orders."""
        return sum(len(order.records) for order in self.open.values())
