from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from millwheel.adapters.ports import JournalWriter, Manifest
from millwheel.control.master import runtime
from millwheel.control.master.config import MasterConfig
from millwheel.control.master.events import Event, ShardReleased, WorkerUnreachable
from millwheel.control.master.runtime import MasterPace, MasterPorts, MasterRuntime
from millwheel.control.master.state import MasterState
from millwheel.control.master.tables.planner import NodeDemand
from millwheel.control.master.tables.resharding import Split
from millwheel.core.model.names import WorkerName
from millwheel.errors import FencedError, UnavailableError
from tests.fakes.coordination import FakeCoordination, FakeZooKeeper


class Clock:
    def __init__(self) -> None:
        self.us = 0

    def now_us(self) -> int:
        return self.us

    def monotonic_us(self) -> int:
        return self.us


class Journals:
    """Seals and collections, as a list of words."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fail = False
        self.found: list[str] = []

    def seal(self, incarnation: str) -> int:
        if self.fail:
            raise UnavailableError("the store does not answer")
        self.done.append(f"seal {incarnation}")
        return 100

    def incarnations(self) -> Sequence[str]:
        return self.found

    def collect(self, incarnation: str) -> None:
        self.done.append(f"collect {incarnation}")

    def create(self, incarnation: str) -> JournalWriter:
        raise FencedError("not here")

    def read(self, incarnation: str, upto: int) -> Iterator[bytes]:
        return iter(())


class Snapshots:
    def __init__(self) -> None:
        self.tokens: dict[str, int] = {}

    def latest(self, shard: str) -> Manifest | None:
        token = self.tokens.get(shard)
        return None if token is None else Manifest(shard, 1, 0, token, 1, {})

    def publish(
        self, shard: str, token: int, last_commit: int, checkpoint: str, guard: Callable[[], None]
    ) -> Manifest:
        raise UnavailableError("not here")

    def restore(self, manifest: Manifest, path: str) -> None:
        raise UnavailableError("not here")

    def collect(self, shard: str) -> int:
        return 0

    def shards(self) -> Sequence[str]:
        return sorted(self.tokens)

    def drop(self, shard: str) -> int:
        return int(self.tokens.pop(shard, None) is not None)


class Lines:
    def __init__(self) -> None:
        self.attached: dict[str, str] = {}

    def attach(self, incarnation: str, address: str) -> None:
        self.attached[incarnation] = address

    def detach(self, incarnation: str) -> None:
        self.attached.pop(incarnation, None)


class Rig:
    """One master over fakes; :meth:`turn` lets everything happen that is due."""

    def __init__(
        self,
        server: FakeZooKeeper,
        workers: int = 2,
        at_once: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self.server = server
        self.session = server.connect()
        self.clock, self.journals, self.snapshots, self.lines = (
            Clock(),
            Journals(),
            Snapshots(),
            Lines(),
        )
        self.events: list[Event] = []
        self.later: list[Callable[[], None]] | None = None
        """Work in the background that has not been done, where it is kept."""
        ports = MasterPorts(
            *(self.clock, self.session, self.journals, self.snapshots, self.lines),
            post=self.events.append,
            background=lambda work: self.later.append(work) if self.later is not None else work(),
            at_once=at_once,
        )
        config = MasterConfig(nodes=(NodeDemand("traffic"),), expected_workers=workers)
        self.runtime = MasterRuntime(MasterState(config), ports, MasterPace())
        self.runtime.begin()

    def turn(self, seconds: float = 0.0) -> None:
        self.clock.us += int(seconds * 1_000_000)
        while True:
            self.server.pump()
            events, self.events[:] = list(self.events), []
            self.runtime.step(events)
            if not self.events and not self.server.pump():
                return

    def owners(self) -> list[str]:
        return [entry.owner for entry in self.server.connect().tables()["traffic"].shards]


def join(server: FakeZooKeeper, name: str) -> FakeCoordination:
    session = server.connect()
    session.join("workers", name, json.dumps({"address": f"{name}:1", "host": "h"}).encode())
    return session


def test_workers_that_join_are_attached_and_get_shards() -> None:
    rig = Rig(FakeZooKeeper())
    rig.turn()
    join(rig.server, "w1"), join(rig.server, "w2")
    rig.turn()
    assert rig.owners() == ["w1", "w1", "w2", "w2"]
    assert rig.lines.attached == {"w1": "w1:1", "w2": "w2:1"}
    assert rig.runtime.view.workers == ("w1", "w2")


def test_a_broken_line_moves_shards_in_one_step_and_ends_the_membership() -> None:
    rig = Rig(FakeZooKeeper())
    join(rig.server, "w1"), join(rig.server, "w2")
    rig.turn()
    rig.runtime.step([WorkerUnreachable(incarnation="w1", reason="refused")])
    assert rig.owners() == ["w2"] * 4
    assert rig.journals.done == ["seal w1"]
    assert set(rig.server.members["workers"]) == {"w2"}
    assert set(rig.lines.attached) == {"w2"}


def test_a_seal_that_fails_moves_nothing_and_is_tried_again() -> None:
    rig = Rig(FakeZooKeeper())
    first, _ = join(rig.server, "w1"), join(rig.server, "w2")
    rig.turn()
    rig.journals.fail = True
    rig.server.expire(first)
    rig.turn(1)
    assert rig.owners() == ["w1", "w1", "w2", "w2"]
    rig.journals.fail = False
    rig.turn(1)
    assert rig.owners() == ["w2"] * 4


def test_a_master_that_is_overtaken_reads_again_and_agrees() -> None:
    server = FakeZooKeeper()
    rig, rival = Rig(server), Rig(server)
    first, _ = join(server, "w1"), join(server, "w2")
    rig.turn()
    server.expire(first)
    rival.turn()
    rig.turn()
    assert rig.owners() == ["w2"] * 4
    assert {entry.token for entry in server.connect().tables()["traffic"].shards} == {1, 2}
    assert rig.runtime.view.tables == rival.runtime.view.tables


def test_a_write_that_zookeeper_does_not_answer_is_tried_again() -> None:
    rig = Rig(FakeZooKeeper())
    rig.turn()
    join(rig.server, "w1"), join(rig.server, "w2")
    rig.server.pump()
    rig.server.cut_off(rig.session)
    events, rig.events[:] = list(rig.events), []
    rig.runtime.step(events)
    assert rig.server.tables == {}
    rig.server.heal(rig.session)
    rig.turn(1)
    assert rig.owners() == ["w1", "w1", "w2", "w2"]


def test_snapshots_shorten_lineages_and_then_journals_are_deleted() -> None:
    rig = Rig(FakeZooKeeper())
    first, _ = join(rig.server, "w1"), join(rig.server, "w2")
    rig.turn()
    rig.server.expire(first)
    rig.turn()
    rig.snapshots.tokens = {"traffic-0": 2}
    rig.turn(10)
    assert rig.journals.done == ["seal w1"]
    rig.snapshots.tokens["traffic-1"] = 2
    rig.turn(10)
    assert rig.journals.done == ["seal w1", "collect w1"]


def test_a_replaced_master_deletes_nothing_that_the_tables_of_its_successor_need() -> None:
    server = FakeZooKeeper()
    rig = Rig(server)
    join(server, "w1"), join(server, "w2")
    rig.turn()
    server.cut_off(rig.session)  # it hears nothing more of tables, and then
    rig.journals.found = ["w9"]
    rig.turn(10)
    rig.turn(10)
    # sealing is always safe; deleting needs a fresh look, which failed
    assert rig.journals.done == ["seal w9"]


def test_a_worker_that_wants_to_leave_is_emptied() -> None:
    rig = Rig(FakeZooKeeper())
    leaver, _ = join(rig.server, "w1"), join(rig.server, "w2")
    rig.turn()
    leaver.join("leaving", "w1", b"")
    rig.turn(2)
    table = rig.server.connect().tables()["traffic"]
    assert [e.next_owner for e in table.shards if e.owner == "w1"] == ["w2", "w2"]
    for entry in table.shards:
        if entry.next_owner:
            rig.events.append(
                ShardReleased(incarnation="w1", shard=entry.shard, token=1, last_commit=3)
            )
    rig.turn(1)
    assert rig.owners() == ["w2"] * 4
    assert "seal w1" not in rig.journals.done


def test_a_move_is_answered() -> None:
    rig = Rig(FakeZooKeeper())
    join(rig.server, "w1"), join(rig.server, "w2")
    rig.turn(5)
    answers: list[str] = []
    rig.runtime.ask_move("traffic", "traffic-0", "w2", answers.append)
    rig.runtime.ask_move("traffic", "traffic-1", "nobody", answers.append)
    rig.turn()
    assert sorted(answers) == ["", "nobody is not a worker that can take shards; these can: w1, w2"]


def test_snapshots_of_a_shard_that_was_split_go_when_its_children_have_their_own() -> None:
    rig = Rig(FakeZooKeeper())
    join(rig.server, "w1"), join(rig.server, "w2")
    rig.turn()
    parent = rig.server.connect().tables()["traffic"].shards[0]
    rig.snapshots.tokens = {parent.shard: 1, "traffic-99": 1, "elsewhere-0": 1}
    middle = (parent.range.lo + parent.range.hi) // 2
    rig.runtime.ask_reshard(Split("traffic", parent.shard, middle), lambda refusal: None)
    rig.turn()
    released = ShardReleased(
        incarnation=parent.owner, shard=parent.shard, token=parent.token, last_commit=7
    )
    rig.events.append(released)
    rig.turn()
    successors = [
        entry for entry in rig.server.connect().tables()["traffic"].shards if entry.parents
    ]
    assert len(successors) == 2
    rig.turn(11)
    assert parent.shard in rig.snapshots.tokens
    rig.snapshots.tokens |= {successor.shard: successor.token for successor in successors}
    rig.turn(11)
    rig.turn(11)
    assert set(rig.snapshots.tokens) == {
        successors[0].shard,
        successors[1].shard,
        "traffic-99",
        "elsewhere-0",
    }


def test_a_member_has_the_weight_that_it_publishes() -> None:
    assert (
        runtime._member(WorkerName("w1"), b'{"address": "a:1", "weight": 3}', leaving=False).weight
        == 3
    )
    assert runtime._member(WorkerName("w1"), b'{"address": "a:1"}', leaving=False).weight == 1


def test_journals_of_workers_that_die_together_are_sealed_beside_each_other() -> None:
    with ThreadPoolExecutor(2) as threads:
        rig = Rig(
            FakeZooKeeper(), workers=3, at_once=lambda work: cast("Any", threads.submit(work))
        )
        join(rig.server, "w1"), join(rig.server, "w2"), join(rig.server, "w3")
        rig.turn()
        both, seal = threading.Barrier(2), rig.journals.seal

        def sealed(incarnation: str) -> int:
            both.wait(10)  # until the other one is being sealed, too
            return seal(incarnation)

        rig.journals.seal = sealed  # type: ignore[method-assign]
        rig.events += [WorkerUnreachable(incarnation=name, reason="lost") for name in ("w1", "w2")]
        rig.turn()
    rig.turn()
    assert sorted(rig.journals.done)[-2:] == ["seal w1", "seal w2"]
    assert set(rig.owners()) == {"w3"}


def test_a_seal_beside_the_loop_that_ends_in_a_bug_is_tried_again() -> None:
    aside: list[Callable[[], None]] = []
    rig = Rig(FakeZooKeeper(), at_once=aside.append)
    join(rig.server, "w1"), join(rig.server, "w2")
    rig.turn()
    rig.journals.seal, seal = lambda incarnation: 1 // 0, rig.journals.seal  # type: ignore[method-assign]
    rig.events.append(WorkerUnreachable(incarnation=WorkerName("w1"), reason="lost"))
    rig.turn()
    with pytest.raises(ZeroDivisionError):
        aside.pop()()
    rig.journals.seal = seal  # type: ignore[method-assign]
    rig.turn(1.0)
    aside.pop()()
    rig.turn()
    assert set(rig.owners()) == {"w2"}


def test_the_journal_of_one_that_owned_nothing_is_sealed_while_shards_already_move() -> None:
    rig = Rig(FakeZooKeeper())
    join(rig.server, "w1"), join(rig.server, "w2")
    rig.turn()
    rig.later = []
    rig.events += [WorkerUnreachable(incarnation=name, reason="lost") for name in ("spare", "w1")]
    rig.turn()
    assert set(rig.owners()) == {"w2"}
    assert rig.journals.done == ["seal w1"]
    for work in rig.later:
        work()
    rig.turn()
    assert "seal spare" in rig.journals.done
