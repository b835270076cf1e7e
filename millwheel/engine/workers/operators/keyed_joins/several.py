"""The join of all records of several streams with equal keys, whenever they come.

Each stream is kept once. With ``V`` for the rows of a stream, and with a null among them where it
has none and may be missing (``left``, ``outer``), the result is the product of all ``V``. So a row
that comes or goes is emitted with all combinations of the other streams, and so is the null that
goes or comes with it.

A retraction that comes before its record counts minus one, as in a join of two streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import msgspec

from millwheel.api import Context, MapHandle, MapState, ValueHandle, ValueState
from millwheel.core.model.records import Record
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.joins import tuples_of
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec
from millwheel.core.pipeline.work import RegularJoinSpec
from millwheel.engine.workers.operators.keyed_joins.regular import (
    NULL,
    RegularJoined,
    Row,
    Side,
)
from millwheel.engine.workers.operators.suspension import RESULT_BYTES, Cursor


class Factor(NamedTuple):
    """The part of one stream in a combination: an encoded value (``NULL``: none), its time (µs),
    and how often it counts, negative where it is taken back."""

    data: bytes
    at: int
    weight: int


class SeveralJoined(RegularJoined):
    """A join of all records of several streams. See the head of this file. Built by
    :func:`several_join`."""

    def __init__(
        self,
        spec: RegularJoinSpec,
        inputs: Sequence[InputSpec],
        outputs: Sequence[str],
        fields: Sequence[Sequence[str]],
    ) -> None:
        super().__init__(spec, inputs, outputs, fields)
        self._missing = spec.kind.missing(len(inputs))

    def go_on(self, ctx: Any, record: Record, cursor: Cursor) -> bool:
        """Add a row, or take one back."""
        arrived = self._arrived(ctx, record)
        if arrived is None:
            return True
        sign, side, identity, data, row, settles = arrived
        if not self._combine(ctx, side, Factor(data, record.timestamp, sign), cursor):
            return False
        if settles:
            assert row is not None
            self._settle(ctx, side, identity, row, record.timestamp)
        else:
            row = row or Row(data, [], [], sign < 0)
            row.times.append(record.timestamp)
            row.alone.append(False)
            self._put(side, identity, row)
        self._store(side)
        return True

    def _combine(self, ctx: Any, side: int, change: Factor, cursor: Cursor) -> bool:
        """Emit the changes of one row more or less of a side, removals first. Whether all are
        emitted; ``cursor.times`` counts those that are."""
        own = self._sides[side]
        before = own.count
        own.count += change.weight
        changes = [change]
        if self._missing[side] and (before > 0) != (own.count > 0):
            changes.append(Factor(NULL, change.at, -change.weight))
        others = self._others(side)
        if others is None:
            return True
        changes.sort(key=lambda each: each.weight)
        # the first factor varies last, so it is the one that changes
        for new, *partners in tuples_of([changes, *others], cursor.times):
            if ctx.suspension.room <= 0:
                own.count = before
                return False
            parts = [*partners[:side], new, *partners[side:]]
            cursor.times += 1
            if any(part.data is not NULL for part in parts):
                ctx.suspension.room -= sum(len(part.data) for part in parts) + RESULT_BYTES
                self._produce_combination(ctx, parts)
        return True

    def _others(self, side: int) -> list[list[Factor]] | None:
        """The factors of the other sides; None if one of them has none."""
        sides = [each for each in range(len(self._names)) if each != side]
        if any(self._is_bare(each) for each in sides):
            return None
        return [list(self._factors(each)) for each in sides]

    def _is_bare(self, side: int) -> bool:
        own = self._sides[side]
        return not (self._missing[side] or self._forgets[side] or own.few or own.entries)

    def _factors(self, side: int) -> Iterator[Factor]:
        if self._missing[side] and self._sides[side].count <= 0:
            yield Factor(NULL, MIN_TIME, 1)
        for _, row in self._all(side):
            weight = -1 if row.owed else 1
            yield from (Factor(row.data, at, weight) for at in row.times)

    def _produce_combination(self, ctx: Context, parts: Sequence[Factor]) -> None:
        row = self._head(ctx.key)
        for name, part in zip(self._names, parts, strict=True):
            row[name] = msgspec.Raw(part.data)
        at = max(part.at for part in parts)
        self._produce(ctx, row, at, prod(part.weight for part in parts))

    def _side(self, side: int) -> ValueHandle[Side]:
        state: ValueHandle[Side] = getattr(self, f"side_{side}")
        return state

    def _rows(self, side: int) -> MapHandle[bytes, Row]:
        rows: MapHandle[bytes, Row] = getattr(self, f"rows_{side}")
        return rows


def several_join(spec: ComputationSpec, fields: Sequence[Sequence[str]]) -> SeveralJoined:
    """The computation for a spec. The rows of each stream live for its ``ttl``."""
    work = spec.work_as(RegularJoinSpec)
    states: dict[str, Any] = {}
    for side, ttl in enumerate(work.ttls_us):
        states[f"rows_{side}"] = MapState(bytes, Row, ttl=ttl)
        states[f"side_{side}"] = ValueState(Side, ttl=ttl)
    kind = type("SeveralJoined", (SeveralJoined,), states)
    computation: SeveralJoined = kind(work, spec.inputs, spec.outputs, fields)
    return computation
