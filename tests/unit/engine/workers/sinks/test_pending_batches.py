"""Batches that are published on a thread, and a batch that is replaced by its parts."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque

import pytest

from millwheel.connect.sinks.base import SinkBatch, Writer
from millwheel.core.metrics import EVENT_TIME_LATENCY, LATENCY, PUBLISH_FAILURES, Histogram
from millwheel.core.model.times import MIN_TIME, SECOND
from millwheel.engine.workers.sinks.pending_batches import (
    PendingBatch,
    SinkFigures,
    in_parts,
    published,
)
from millwheel.errors import InvariantError, UnavailableError


class Target(Writer):
    """Raises what it is told, and renames committables as ``NAME/NUMBER``."""

    def __init__(self, raises: BaseException | None = None) -> None:
        self.raises = raises
        self.written: list[bytes] = []

    def prepare(self, batch: SinkBatch) -> bytes:
        return b"never"

    def publish(self, committable: bytes) -> None:
        if self.raises is not None:
            raise self.raises
        self.written.append(committable)

    def sweep(self, committables: list[bytes]) -> None:
        self.written.clear()

    def renumbered(self, committable: bytes, number: int) -> bytes:
        return committable.split(b"/")[0] + b"/%d" % number


class Panic(BaseException):
    """As libraries in Rust raise it."""


def test_what_a_batch_took_is_measured_only_when_it_is_visible() -> None:
    took = Histogram((1.0,))
    target = Target()
    assert published(target, b"a/1", took) is None
    assert target.written == [b"a/1"]
    away = UnavailableError("away")
    assert published(Target(away), b"a/2", took) is away
    assert sum(took._counts) == 1


def test_a_panic_of_a_client_is_told_and_ends_no_thread_in_silence() -> None:
    with pytest.raises(Panic):
        published(Target(Panic("not known as a client's")), b"a/1", None)
    error = published(Target(CancelledError()), b"a/1", None)
    assert isinstance(error, InvariantError)
    with pytest.raises(KeyboardInterrupt):
        published(Target(KeyboardInterrupt()), b"a/1", None)


def test_the_batches_behind_a_divided_one_get_the_numbers_behind_its_parts() -> None:
    first = PendingBatch(7, 3, b"a/3", 10, [1, 2], parts=(b"b/3", b"c/4"))
    behind = PendingBatch(7, 4, b"d/4", 20, [3])
    found = in_parts(deque([first, behind]), Target(), 8)
    assert [(each.number, each.committable, each.commit) for each in found] == [
        (3, b"b/3", 8),
        (4, b"c/4", 8),
        (5, b"d/5", 8),
    ]
    assert [each.born for each in found] == [[], [1, 2], [3]], (
        "only with the last part is all of it visible"
    )
    assert not any(each.parts for each in found)


# figures.py


def test_both_latencies_of_a_batch_are_counted() -> None:
    figures = SinkFigures()
    figures.visible(10 * SECOND, [9 * SECOND, 8 * SECOND], 3 * SECOND)
    figures.visible(11 * SECOND, [], MIN_TIME)  # found after a crash: nobody knows when it was read
    found = {each.metric: each.value for each in figures.figures()}
    assert (found[LATENCY].count, found[LATENCY].total_s) == (2, 3.0)  # type: ignore[union-attr]
    assert (found[EVENT_TIME_LATENCY].count, found[EVENT_TIME_LATENCY].total_s) == (1, 7.0)  # type: ignore[union-attr]


def test_why_a_target_is_away_is_known_until_it_is_back_and_each_change_is_told_once() -> None:
    figures = SinkFigures()
    figures.away("connection\n refused")
    figures.away("connection refused")
    assert (figures.why, figures.changes, figures.failures) == ("connection refused", 1, 2)
    figures.visible(SECOND, [], SECOND)
    assert (figures.why, figures.changes) == ("", 2)
    assert {each.metric: each.value for each in figures.figures()}[PUBLISH_FAILURES] == 2
