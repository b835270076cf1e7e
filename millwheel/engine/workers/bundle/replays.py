"""Records of a step that were dead letters before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millwheel.core.model.records import DeadLetter
from millwheel.core.pipeline.replays import Again, ReplayOrder, as_key
from millwheel.engine.workers.bundle.bundle import ALL, LINE, Bundle, keys_of


@dataclass(frozen=True, slots=True)
class ReplayReply:
    """The origin of a record of an order; its ack goes nowhere. ``records`` are by number."""

    order: ReplayOrder
    records: Mapping[int, Again]


def take_replayed(bundle: Bundle, pipeline: str) -> None:
    """Mark the records of a step that are replays, so that dead letters about them keep their
    history. Records with a known problem become dead letters at once."""
    for index, arrival in enumerate(bundle.arrivals):
        reply_to = arrival.reply_to
        if not isinstance(reply_to, ReplayReply) or not len(arrival.batch):
            continue
        batch = arrival.batch.rows()
        bundle.count(reply_to.order.counter, len(batch))
        bundle.most = ALL
        good = []
        for row, seq in enumerate(batch.seqs):
            again = reply_to.records[seq]
            key = None if again.problem else as_key(again.key)
            bundle.remember(key, again.value, again.timestamp, again.history)
            if not again.problem:
                good.append(row)
                continue
            what = LINE if again.blame else keys_of(again.stream)
            blamed = again.blame or again.node
            letter = DeadLetter(
                pipeline, blamed, again.stream, again.problem, None, again.value, again.timestamp
            )
            bundle.dead_letter(
                letter, max(again.timestamp, bundle.floor), (reply_to.order.id, seq), what
            )
        if len(good) < len(batch):
            bundle.arrivals[index] = replace(arrival, batch=batch.pick(good))
