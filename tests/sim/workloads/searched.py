"""Pipelines that the search over pipelines draws, so that every feature meets every fault. What
must have come out is what the same pipeline gives without faults, one record at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millwheel.adapters.ports import Clock
from millwheel.connect.sources.base import Chunk, Partition, Reject
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec, SinkSpec, SourceSpec
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.tools.testing.rewiring import streams_of
from tests.search.compare import differences
from tests.search.facts import Facts, Free, Level
from tests.search.freedoms import promised
from tests.search.generate import case
from tests.search.generate.pushes import NOW, SECOND
from tests.search.questions import ConstantLookup
from tests.search.running import run
from tests.search.script import Case, Finish, Letter, Outcome, Push, Row, load
from tests.search.variants import BASE
from tests.sim.kernel import START_US, Failure
from tests.sim.outside import MemoryReader, MemorySource
from tests.sim.workloads.base import Workload

_LOOKUPS = 7  # one of so many seeds has a lookup
_FAR = 10**15
"""So far beyond the clock of any process lies what must not be taken."""


class Searched(Workload):
    """A pipeline of the generator, its pushes as the rows of its partitions, and sinks for all of
    its streams."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        wanted = ("lookup",) if seed % _LOOKUPS == 0 else ()
        drawn = case(seed, wanted, without=("schema", "as_of_arrival"), racing=True)
        self.case = replace(drawn, now=START_US, script=_placed(drawn, size))
        self._spec = load(self.case.yaml)
        self.upserts = {
            sink.stream for sink in self._spec.sinks if sink.options.get("mode") == "upsert"
        }
        for action in self.case.script:
            if isinstance(action, Push):
                rows = self.rows.setdefault(action.stream, {}).setdefault(action.partition, [])
                rows += action.values
        for stream in self._spec.streams:
            if stream.source is not None:
                self.rows.setdefault(stream.name, {}).setdefault("pushed", [])

    def spec(self) -> PipelineSpec:
        streams = tuple(
            replace(s, source=SourceSpec("memory", {"stream": s.name}))
            if s.source is not None
            else s
            for s in self._spec.streams
        )
        produced = [name for name in streams_of(self._spec) if name not in self.rows]
        keys = {sink.stream: sink.key for sink in self._spec.sinks}
        sinks = tuple(self._sink(name, keys) for name in produced)
        return replace(self._spec, streams=streams, sinks=sinks)

    def _sink(self, name: str, keys: Any) -> SinkSpec:
        made = SinkSpec(name, "latest" if name in self.upserts else "memory")
        return replace(made, key=keys.get(name, made.key))

    def assembly(self, clock: Clock) -> Assembly:
        super().assembly(clock)  # writes the list of the partitions
        spec = self.spec()
        fields = {
            each.name: {**each.fields, **each.times, **each.decimals} for each in spec.streams
        }
        sources = {
            name: _Typed(rows, self._released, self.stride, FieldTypes(fields[name]))
            for name, rows in self.rows.items()
        }
        outside = Factories(
            lambda given, *_: sources[given.options["stream"]],
            self.sinks.build,
            lookup=lambda spec, folder: ConstantLookup(),
        )
        return Assembly(spec, str(self._root), clock, outside, self.limits)

    def check(self) -> None:
        want = run(self._read(), BASE)
        several = frozenset(name for name, partitions in self.rows.items() if len(partitions) > 1)
        known = promised(self._spec, False, Free(bundling=True, crashing=True, racing=several))
        keys = {
            name: _key_fields(known.streams.get(name))
            for name in want.streams.keys() | want.standing.keys()
        }
        loose = {
            name
            for name, facts in known.streams.items()
            if facts.level is Level.STANDING and not facts.retracts and not keys.get(name)
        }
        names = want.streams.keys() - self.rows.keys() - loose
        wanted = Outcome(
            {name: _bare((row.value for row in want.streams[name]), keys[name]) for name in names},
            tuple(letter for letter in want.letters),
            {
                name: _bare((row.value for row in want.standing[name]), keys[name])
                for name in want.standing
            },
        )
        got = Outcome(
            {name: _bare(self.sinks.rows(name), keys[name]) for name in names},
            tuple(
                Letter(row["computation"], row["reason"], row.get("value"))
                for row in self.sinks.rows(DEAD_LETTERS)
            ),
            {name: _bare(self.sinks.rows(name), keys[name]) for name in want.standing},
        )
        unequal = differences(self._spec, known, wanted, got, counted=False, ordered=False)
        if unequal:
            raise Failure(
                f"results are those of a run without faults: {unequal[0]}\n{self.case.yaml}"
            )

    def _read(self) -> Case:
        """The case as far as its rows were read: a run may have been told to end. All partitions
        are there from the beginning, as those of bounded input are: none comes when the watermark
        has passed it."""
        begun = [
            Push(stream, (), partition)
            for stream, partitions in self.rows.items()
            for partition in partitions
        ]
        pushes = [
            Push(stream, (row,), partition)
            for stream, partitions in self.rows.items()
            for partition, rows in partitions.items()
            for row in rows
        ]
        return self.case.with_script((*begun, *pushes, Finish()))


def _placed(drawn: Case, size: float) -> tuple[Any, ...]:
    """The pushes, with what lies in the far future far beyond any clock."""
    limit = NOW + 60 * SECOND
    pushes = [action for action in drawn.script if isinstance(action, Push)]
    kept = pushes[: max(1, round(len(pushes) * size))]
    return tuple(
        replace(push, values=tuple(_moved(value, limit) for value in push.values)) for push in kept
    )


def _moved(value: Any, limit: int) -> Any:
    at = value.get("at")
    far = type(at) is int and (at > limit or limit // 1000 < at < limit // 100)
    return {**value, "at": START_US + _FAR} if far else value


def _key_fields(facts: Facts | None) -> tuple[str, ...]:
    """The fields that hold the key of a row: a sink is not told the key itself."""
    keyed = facts.keyed if facts is not None else None
    return (
        keyed.names if keyed is not None and keyed.kind in (KeyKind.FIELD, KeyKind.FIELDS) else ()
    )


def _bare(values: Any, key: tuple[str, ...]) -> tuple[Row, ...]:
    return tuple(Row([value.get(name) for name in key] or None, 0, value) for value in values)


class _Typed(MemorySource):
    """Rows of declared types; the others are rejected."""

    def __init__(self, rows: Any, released: Any, stride: int, types: FieldTypes) -> None:
        super().__init__(rows, released, stride)
        self._types = types

    def open(self, partition: Partition) -> MemoryReader:
        return _TypedReader(self.rows[partition.name], self._released, self._stride, self._types)


class _TypedReader(MemoryReader):
    def __init__(self, rows: list[Any], released: Any, stride: int, types: FieldTypes) -> None:
        super().__init__(rows, released, stride)
        self._types = types

    def read(self, position: int, max_records: int) -> Chunk:
        chunk = super().read(position, max_records)
        # Copies: times are converted in place, and the rows will be read again.
        values = [dict(value) for value in chunk.values]
        problems: dict[int, str] = self._types.check(values) if self._types else {}
        return replace(
            chunk,
            positions=_without(chunk.positions, problems),
            values=_without(values, problems),
            rejects=[
                Reject(chunk.positions[at], chunk.values[at], why)
                for at, why in sorted(problems.items())
            ],
        )


def _without(items: Sequence[Any], indexes: dict[int, str]) -> list[Any]:
    return [item for at, item in enumerate(items) if at not in indexes]
