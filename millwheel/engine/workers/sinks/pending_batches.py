"""Batches of a sink on their way: prepared, committed, and handed to the thread that makes them
visible."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from millwheel.connect.connectors.external.meanings import is_of_client, named
from millwheel.connect.sinks.base import Refused, Writer
from millwheel.core.metrics import (
    EVENT_TIME_BOUNDS_S,
    EVENT_TIME_LATENCY,
    LATENCY,
    LATENCY_BOUNDS_S,
    PUBLISH_FAILURES,
    PUBLISH_SECONDS,
    Figure,
    Histogram,
)
from millwheel.core.model.names import ShardName, Token
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.operator import SinkNews
from millwheel.engine.workers.tracing.traced_bundle import TracedBundle
from millwheel.errors import InvariantError

NO_COMMIT_YET = MAX_TIME
"""The commit of a batch that is about to be committed anew."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A committed batch to be made visible by another thread. ``report(number, error, now)`` is
    called by the loop."""

    shard: ShardName
    token: Token
    number: int
    committable: bytes
    writer: Writer
    report: Callable[[int, Exception | None, int], None]
    took: Histogram | None = None

    @property
    def lane(self) -> str:
        """Publications of one lane share a thread."""
        return self.writer.lane

    def carried_out(self) -> ev.WorkDone:
        """Publish it. The loop raises an error or tries again."""
        error = published(self.writer, self.committable, self.took)
        return ev.WorkDone(
            self.shard, self.token, lambda now_us: self.report(self.number, error, now_us)
        )


def published(writer: Writer, committable: bytes, took: Histogram | None) -> Exception | None:
    """Publish a batch; returns the error."""
    began_s = monotonic()
    try:
        writer.publish(committable)
    except Exception as ex:
        return ex
    except BaseException as ex:  # of a client library: the thread must not end in silence
        if not is_of_client(ex):
            raise
        return InvariantError(
            f"a batch was not published, and its thread was asked to end: {named(ex)}"
        )
    if took is not None:
        took.add(monotonic() - began_s)
    return None


@dataclass(slots=True)
class PendingBatch:
    """A batch that is prepared; committed once ``commit`` is durable; then to be published.
    ``former``: an earlier owner has committed it, perhaps with records that the target refuses."""

    commit: int
    number: int
    committable: bytes
    min_timestamp: int
    born: list[int]
    former: bool = False
    asked: bool = False
    visible: bool = False
    refused: Sequence[Refused] = ()
    """Records that the target refuses: dead letters of the next bundle, which commits the batch
    without them."""
    traced: TracedBundle | None = None
    parts: Sequence[bytes] = ()
    """Committables that replace this one: some record of it is refused, and the target does not
    name it."""


def in_parts(batches: deque[PendingBatch], writer: Writer, commit: int) -> deque[PendingBatch]:
    """The batches, of which the first is replaced by its parts; those behind it get the numbers
    behind those. ``commit`` is the one that stores them all."""
    first, *others = batches
    *early, last = first.parts
    # The last part stands for the whole in the measurements: only with it is everything visible.
    parts = [replace(first, committable=part, born=[], traced=None, parts=()) for part in early]
    parts.append(replace(first, committable=last, parts=()))
    parts += [
        replace(each, committable=writer.renumbered(each.committable, each.number + len(early)))
        for each in others
    ]
    return deque(
        replace(each, number=first.number + at, commit=commit) for at, each in enumerate(parts)
    )


_WHY_CHARS = 300  # of an error, in the text of a hold


class SinkFigures(SinkNews):
    """The figures of a sink shard for ``/metrics``, updated per batch, never per record. ``why`` is
    the last error of an unavailable target, "" once it takes batches again; with it the words of
    the hold change."""

    def __init__(self) -> None:
        super().__init__()
        self.publish_s = Histogram(LATENCY_BOUNDS_S)
        self.latency_s = Histogram(LATENCY_BOUNDS_S)
        self.event_time_s = Histogram(EVENT_TIME_BOUNDS_S)
        self.failures = 0
        self.why = ""

    def away(self, why: str) -> None:
        """Note that the target did not take a batch, which is tried again."""
        self.failures += 1
        self._set_why(" ".join(why.split())[:_WHY_CHARS])

    def visible(self, now_us: int, born_us: Sequence[int], earliest_us: int) -> None:
        """Note a batch as visible: its deliveries were read at ``born_us``, its earliest timestamp
        is ``earliest_us``."""
        self._set_why("")
        for born in born_us:
            self.latency_s.add((now_us - born) / SECOND)
            self.latencies_ms.append((now_us - born) / 1000)
        if MIN_TIME < earliest_us < IDLE_TIME:
            self.event_time_s.add(max(0, now_us - earliest_us) / SECOND)

    def _set_why(self, why: str) -> None:
        self.changes += why != self.why
        self.why = why

    def figures(self) -> Sequence[Figure]:
        """For ``/metrics``, without the labels of the shard."""
        return (
            Figure(PUBLISH_SECONDS, self.publish_s),
            Figure(PUBLISH_FAILURES, self.failures),
            Figure(LATENCY, self.latency_s),
            Figure(EVENT_TIME_LATENCY, self.event_time_s),
        )
