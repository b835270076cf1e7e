"""Records that run one by one, because owners of their shard have died of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from millwheel.core.model.records import DeadLetter
from millwheel.workers.bundle.bundle import RECORD, Bundle
from millwheel.workers.bundle.hangs import Avoided, Hang, record_mark
from millwheel.workers.delivery.inbox import Arrival


def noted(bundle: Bundle, avoided: Avoided) -> bytes:
    """Note what is in progress from now on. Returns what :meth:`.Avoided.over` needs."""
    arrivals = bundle.arrivals
    if avoided.lone and len(arrivals) == 1 and len(arrivals[0].batch) == 1:
        batch = arrivals[0].batch.rows()
        return avoided.alone(record_mark(batch, arrivals[0].channel, 0), RECORD, batch.keys[0])
    return avoided.together(sum([len(arrival.batch) for arrival in arrivals]))


def put_aside(bundle: Bundle, avoided: Avoided, pipeline: str) -> None:
    """Leave out a record that has ended its workers: it becomes a dead letter, in the commit that covers it."""
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
    """How many records these are."""
    return sum([len(arrival.batch) for arrival in arrivals])
