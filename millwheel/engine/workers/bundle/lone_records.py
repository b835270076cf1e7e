"""Records that run one by one, because owners of their shard have died of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from millwheel.connect.sources.base import Chunk, Reader
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.records import DeadLetter
from millwheel.engine.workers.bundle.bundle import LINE, Bundle
from millwheel.engine.workers.bundle.hangs import Avoided, Hang, record_mark
from millwheel.engine.workers.delivery.inbox import Arrival


def put_aside(bundle: Bundle, avoided: Avoided, pipeline: str) -> None:
    """Leave out a record that has ended its workers: it becomes a dead letter, in the commit that
    covers it."""
    for index, arrival in enumerate(bundle.arrivals):
        if len(arrival.batch) != 1:
            continue
        batch = arrival.batch.rows()
        hang = avoided.meet(record_mark(batch, arrival.channel, 0), bundle.number)
        if hang is not None:
            timestamp = batch.timestamps[0]
            letter = _letter(arrival, hang, pipeline)
            bundle.dead_letter(letter, max(timestamp, bundle.floor), (arrival.channel, hang.mark))
            bundle.arrivals[index] = replace(arrival, batch=batch.pick([]))


def _letter(arrival: Arrival, hang: Hang, pipeline: str) -> DeadLetter:
    batch = arrival.batch.rows()
    value: Any = batch.values[0]
    return DeadLetter(
        pipeline=pipeline,
        computation=hang.node,
        stream=batch.stream,
        reason=hang.reason,
        key=batch.keys[0],
        value=msgspec.msgpack.decode(value) if isinstance(value, msgspec.Raw) else value,
        timestamp=batch.timestamps[0],
        location=hang.where,
        attempts=1,
        error=hang.ended.removeprefix("was "),
    )


def count_of(arrivals: Sequence[Arrival]) -> int:
    """The number of records in arrivals."""
    return sum([len(arrival.batch) for arrival in arrivals])


@dataclass(slots=True)
class LoneReads:
    """The reads of one record each of a source's shard. ``skipped``: the marks of records that were
    passed over, by partition and the position behind them; the notes about them are needed until
    that is committed."""

    skipped: list[tuple[str, int, bytes]] = field(default_factory=list)

    def read(self, partition: str, position: int, reader: Reader, avoided: Avoided) -> Chunk:
        """Read one record, which is noted until the bundle is over, or pass it over if it has ended
        its workers."""
        mark = encode_value(("p", partition, position))
        hang = avoided.hangs.get(mark)
        chunk = None if hang is None else reader.skip(position)
        if hang is None or chunk is None:
            avoided.alone(mark, LINE, f"{partition}@{position}")
            return reader.read(position, 1)
        chunk.rejects = [
            replace(each, reason=_line_reason(hang, each.reason)) for each in chunk.rejects
        ]
        self.skipped.append((partition, chunk.next_position, mark))
        return chunk

    def committed(self, partition: str, position: int, avoided: Avoided, number: int) -> None:
        """Note that a position is part of the commit of this number."""
        for name, end, mark in self.skipped:
            if name == partition and end <= position:
                avoided.meet(mark, number)
        self.skipped = [each for each in self.skipped if each[0] != partition or each[1] > position]


def _line_reason(hang: Hang, where: str) -> str:
    return where + hang.reason + (f" ({hang.where})" if hang.where else "")
