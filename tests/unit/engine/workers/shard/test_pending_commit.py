from __future__ import annotations

from typing import Any, cast

import pytest

from millwheel.core.formats.codec import Commit
from millwheel.core.formats.store_layout import PENDING, number8
from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.delivery.outbox import OutputChunk
from millwheel.engine.workers.shard.pending_commit import PendingCommit, Step
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError
from tests.fakes.plain_storage import SimStore


class Shard:
    def __init__(self) -> None:
        self.store = SimStore({})


def weak_commit() -> PendingCommit:
    chunk = OutputChunk(
        7, "c", [("t", Batch("s", [], [1], ["a"], [1]))], 1, stored=False, stored_form=b"form"
    )
    return PendingCommit(
        cast("Any", Shard()), 1, Commit("s", 1, 1, [], []), [], chunk, Hold(), weak=True
    )


def test_weak_productions_straggle_until_every_consumer_has_them() -> None:
    commit = weak_commit()
    assert commit.straggles
    assert commit.chunk is not None
    commit.chunk.finished = True
    assert not commit.straggles


def test_strong_productions_never_straggle() -> None:
    commit = weak_commit()
    commit.weak = False
    assert not commit.straggles


def test_stragglers_go_into_the_commit_and_into_the_store_once() -> None:
    """In one of them alone, a recovery or a snapshot would lack them."""
    commit = weak_commit()
    commit.checkpoint_chunk()
    commit.checkpoint_chunk()
    store_key = PENDING + number8(7)
    assert commit.commit is not None
    assert commit.commit.puts == [(store_key, b"form")]
    assert cast("Any", commit.shard).store.data == {store_key: b"form"}


def test_a_weak_commit_without_productions_is_a_mistake() -> None:
    commit = weak_commit()
    commit.chunk = None
    with pytest.raises(InvariantError):
        commit.checkpoint_chunk()


def chunk(at: int) -> OutputChunk:
    return OutputChunk(1, "c", [("t", Batch("s", [1], [at], ["a"], [1]))], at)


def step(hold: int, made: OutputChunk | None, *reads: OutputChunk) -> Step:
    queues = {domain: TimerQueue(domain) for domain in Domain}
    bundle = Bundle(1, 0, 0, [], Overlay(SimStore({})), queues)
    bundle.chunks += reads
    return Step(bundle, [], Hold(hold, "input"), 0, made, asks=False)


def test_a_step_that_waits_keeps_the_watermark_at_the_earliest_of_all_that_it_has_made() -> None:
    """Nothing of it is on its way yet, so nothing else holds it."""
    assert step(50, None).kept().at == 50
    assert step(50, chunk(40)).kept().at == 40
    assert step(50, chunk(60), chunk(30)).kept().at == 30
    assert step(MAX_TIME, chunk(60)).kept().at == 60
    assert "verdict" in step(50, None).kept().holder
