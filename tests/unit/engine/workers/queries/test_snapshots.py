"""Snapshots that are opened to be asked: in the background, the newest one, and not too many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pytest

from millwheel.adapters.ports import StoreView
from millwheel.core.formats.store_layout import META, Meta, encode_meta
from millwheel.engine.queries.model import Answer, Consistency, Finding, Query, QueryError
from millwheel.engine.workers.queries import snapshots as module
from millwheel.engine.workers.queries.copies import FollowedCopies
from millwheel.engine.workers.queries.snapshots import SnapshotCopies, SnapshotFolder
from millwheel.engine.workers.recovery.following import Following, Standbys
from millwheel.errors import UnavailableError
from tests.fakes.plain_storage import CHECKPOINTS
from tests.unit.engine.workers.recovery.test_recovery import Storage

QUERY = Query("t", 1, 1, 1, consistency=Consistency.SNAPSHOT)


def number(query: Query, store: StoreView, watermark_us: int) -> Finding:
    return Finding({"n": store.get(b"k")})


@dataclass
class Bench:
    now_us: int = 0
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.storage = parts = Storage()
        clock = lambda: self.now_us  # noqa: E731
        standbys = Standbys(
            Following(parts.stores, parts.snapshots, parts.journals, "/scratch", Lock, clock)
        )
        self.opened = SnapshotCopies(
            SnapshotFolder(
                parts.stores, parts.snapshots, "/scratch", Lock, self.waiting.append, clock
            )
        )
        self.copies = FollowedCopies(standbys, number, clock, self.opened)

    def publish(self, commit: int, shard: str = "t-0") -> None:
        CHECKPOINTS["made"] = {
            META: encode_meta(Meta(commit, counters={}, watermark=7)),
            b"k": b"%d" % commit,
        }
        self.storage.snapshots.publish(shard, 3, commit, "made", lambda: None)

    def work(self) -> None:
        while self.waiting:
            self.waiting.pop()()

    def ask(self, shard: str = "t-0", query: Query = QUERY) -> Answer | str:
        try:
            found = self.copies.answer(shard, query)  # type: ignore[arg-type]
        except QueryError as ex:
            return ex.sentence if ex.code == "unavailable" else ex.code
        assert found is not None
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_first_question_opens_the_snapshot_and_the_next_ones_are_answered(bench: Bench) -> None:
    bench.publish(4)
    assert "being opened" in str(bench.ask())
    assert "being opened" in str(bench.ask())
    assert len(bench.waiting) == 1
    bench.work()
    found = bench.ask()
    assert isinstance(found, Answer)
    assert (found.values, found.commit, found.token, found.watermark_us) == ({"n": b"4"}, 4, 3, 7)
    assert (found.consistency, found.lag_us) == (Consistency.STANDBY, None)


def test_only_who_asks_for_a_snapshot_makes_one_be_opened(bench: Bench) -> None:
    bench.publish(4)
    assert bench.copies.answer("t-0", Query("t", 1, 1, 1, consistency=Consistency.STANDBY)) is None  # type: ignore[arg-type]
    assert not bench.waiting


def test_a_newer_snapshot_takes_the_place_of_the_one_that_is_asked(bench: Bench) -> None:
    bench.publish(4)
    bench.ask()
    bench.work()
    bench.publish(9)
    assert bench.ask().commit == 4  # type: ignore[union-attr]
    assert not bench.waiting  # it was looked at a moment ago
    bench.now_us = 6_000_000
    bench.ask()
    bench.work()
    assert bench.ask().commit == 9  # type: ignore[union-attr]
    bench.now_us = 12_000_000
    bench.ask()
    bench.work()
    assert bench.opened.opened["t-0"].looked_us == 12_000_000  # type: ignore[index]


def test_a_shard_without_a_snapshot_and_one_that_cannot_be_opened_are_sentences(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.ask()
    bench.work()
    assert "it has no snapshot yet" in str(bench.ask())
    bench.work()

    def gone(*_: Any) -> None:
        raise UnavailableError("it was collected")

    bench.publish(4)
    monkeypatch.setattr(bench.storage.snapshots, "restore", gone)
    bench.ask()
    bench.work()
    assert "cannot be opened" in str(bench.ask())


def test_so_many_snapshots_are_open_and_no_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_OPEN", 2)
    for shard in ("t-0", "t-1", "t-2"):
        bench.publish(4, shard)
        bench.ask(shard)
        bench.work()
        bench.ask("t-0")
    assert list(bench.opened.opened) == ["t-2", "t-0"]
