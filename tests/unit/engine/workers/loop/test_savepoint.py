from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from millwheel.control.savepoints.orders import OrderAnswer, Phase, SavepointOrder, Standing, encode
from millwheel.core.formats.store_layout import ENDED, Meta
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.loop.savepoint import SavepointPart
from millwheel.engine.workers.shard.productions import ShardIdentity
from millwheel.engine.workers.sources.source_parts import SourceEnd
from millwheel.engine.workers.threads.copies import Copying
from millwheel.errors import FencedError


@dataclass
class Port:
    """What the worker said and copied."""

    answers: list[OrderAnswer] = field(default_factory=list)
    saves: list[tuple[str, Standing]] = field(default_factory=list)
    withdrawn: int = 0

    def answer(self, answer: OrderAnswer) -> None:
        self.answers.append(answer)

    def withdraw(self) -> None:
        self.withdrawn += 1

    def checkpoint_path(self, order: SavepointOrder, shard: str) -> str:
        return f"/scratch/{shard}"

    def save(self, order: SavepointOrder, shard: str, standing: Standing, path: str) -> None:
        self.saves.append((shard, standing))


@dataclass
class Resting(Operator):
    resting: list[bool] = field(default_factory=list)
    finished: bool = False

    def rest(self, wanted: bool, now_us: int) -> None:
        self.resting.append(wanted)

    def finish(self) -> None:
        self.finished = True

    def run(self, bundle: Bundle) -> None:
        pass


@dataclass
class Commits:
    """Those on their way to the journal."""

    pending: list[int]
    made: int = 4


@dataclass
class Shard:
    """As much of a shard as a savepoint sees."""

    restless: int = 0
    is_settled: bool = True
    wants: bool = True
    operator: Resting = field(default_factory=Resting)
    checkpoints: list[str] = field(default_factory=list)
    watermark: Any = None
    meta: Any = field(default_factory=Meta)

    @property
    def identity(self) -> ShardIdentity:
        return ShardIdentity("node", "shard", 2, "pipeline")

    @property
    def admission(self) -> Shard:
        """It says itself whether it runs."""
        return self

    @property
    def commits(self) -> Any:
        return Commits([] if self.is_settled else [4])

    @property
    def outbox(self) -> Any:
        return type("Outbox", (), {"done": []})

    def unfinished(self) -> int:
        return self.restless

    def runnable(self, now_us: int) -> bool:
        return self.wants

    def runs_at(self, now_us: int, patient: bool = False) -> int:
        return now_us if self.wants else now_us + 5

    def checkpoint(self, path: str) -> None:
        self.checkpoints.append(path)


class Watermark:
    """Its input has ended."""

    input = MAX_TIME

    def hold(self, now_us: int) -> Hold:
        return Hold()


class Worker:
    """A part with one shard, ``a-0``."""

    def __init__(self) -> None:
        self.port, self.shard = Port(), Shard()
        self.part = SavepointPart(self.port)
        self.served: Mapping[str, Any] = {"a-0": type("Served", (), {"shard": self.shard})}

    def order(self, *orders: SavepointOrder) -> None:
        self.part.ordered({each.name: encode(each) for each in orders}, self.served, 100)
        self.part.step(self.served, 100)

    def said(self) -> dict[str, Standing]:
        return {
            name: standing
            for answer in self.port.answers
            for name, standing in answer.shards.items()
        }

    @property
    def runs(self) -> bool:
        return not self.part.holding and self.part.runs_at(self.shard, 0, False) == 0  # type: ignore[arg-type]


def save(commit: int = 4, stay: bool = False, **cut: Standing) -> SavepointOrder:
    return SavepointOrder(
        "s1", 3, Phase.SAVE, "/saved", stay, cut={"a-0": Standing(2, commit), **cut}
    )


REST, HOLD = SavepointOrder("s1", 1, Phase.REST), SavepointOrder("s1", 2, Phase.HOLD)


def test_at_rest_only_what_waits_is_worked_off_and_then_it_is_said() -> None:
    worker = Worker()
    worker.shard.restless = 3
    worker.order(REST)
    assert worker.runs
    assert worker.said() == {}
    worker.shard.restless = 0
    worker.part.step(worker.served, 101)
    assert not worker.runs
    assert worker.said() == {"a-0": Standing(2, 4)}
    assert worker.shard.operator.resting == [True]


def test_who_holds_still_runs_nothing_and_says_where_it_stands_once_that_is_durable() -> None:
    worker = Worker()
    worker.shard.restless, worker.shard.is_settled = 1, False
    worker.order(HOLD)
    assert not worker.runs
    assert worker.said() == {}
    worker.shard.is_settled = True
    worker.part.step(worker.served, 101)
    assert worker.said() == {"a-0": Standing(2, 4, unfinished=1)}


def test_a_shard_is_copied_if_it_stands_where_the_cut_says_and_the_worker_goes_on_at_once() -> None:
    worker = Worker()
    worker.order(HOLD)
    worker.order(save(), HOLD)
    assert worker.port.saves == [("a-0", Standing(2, 4))]
    assert worker.runs
    assert worker.shard.operator.resting[-1] is False
    worker.part.saved(ev.ShardSaved(save(), "a-0", Standing(2, 4)))
    assert worker.port.answers[-1].number == 3
    assert worker.said() == {"a-0": Standing(2, 4)}


def test_with_a_savepoint_to_stop_with_nothing_goes_on_until_the_order_is_taken_back() -> None:
    worker = Worker()
    worker.order(save(stay=True))
    assert not worker.runs
    worker.order()
    assert worker.runs
    assert worker.shard.operator.resting == [True, False]


def test_a_shard_that_has_moved_on_is_not_copied_and_that_is_said() -> None:
    worker = Worker()
    worker.order(save(commit=3))
    assert worker.port.saves == []
    assert "moved on" in worker.port.answers[-1].problem


def test_a_shard_of_another_owner_is_not_copied_though_it_stands_at_that_commit() -> None:
    """The numbers of commits go on from owner to owner, and another owner's commit may be another
    one."""
    worker = Worker()
    order = SavepointOrder("s1", 3, Phase.SAVE, "/saved", cut={"a-0": Standing(1, 4)})
    worker.order(order)
    assert worker.shard.checkpoints == []
    assert [answer.problem for answer in worker.port.answers] == [
        "shard a-0 moved on before it was copied"
    ]


def test_a_copy_for_an_order_that_is_over_is_not_spoken_of() -> None:
    worker = Worker()
    worker.order(save())
    worker.order()
    worker.part.saved(ev.ShardSaved(save(), "a-0", Standing(2, 4)))
    assert worker.said() == {}
    assert worker.port.withdrawn == 2


def test_an_order_to_finish_reaches_shards_opened_later_even_when_taken_back() -> None:
    worker = Worker()
    worker.order(SavepointOrder("f", 1, Phase.FINISH))
    assert worker.shard.operator.finished
    assert worker.runs
    worker.order()
    later = Shard()
    worker.part.opened(later, 0)  # type: ignore[arg-type]
    assert later.operator.finished


@pytest.mark.parametrize("settle", [False, True])
def test_sources_are_told_to_end_although_timers_are_due(settle: bool) -> None:
    """Nothing is begun at rest, so what is due would be due for ever; it counts only for whoever
    waits until nothing is left to do, and lets the pipeline continue meanwhile."""
    worker = Worker()
    worker.shard.watermark = Watermark()
    worker.order(SavepointOrder("f", 2, Phase.HOLD, catch_up=True, settle=settle))
    assert worker.said()["a-0"].unfinished == settle


def test_what_is_no_order_changes_nothing() -> None:
    worker = Worker()
    worker.part.ordered({"x": b"?"}, worker.served, 0)
    assert worker.runs


class Snapshots:
    def __init__(self) -> None:
        self.published: list[str] = []

    def publish(
        self, shard: str, token: int, last_commit: int, checkpoint: str, guard: Any
    ) -> None:
        guard()
        self.published.append(shard)


@pytest.mark.parametrize("fenced", [False, True])
def test_a_copy_by_whoever_is_fenced_is_none(fenced: bool) -> None:
    def guard() -> None:
        if fenced:
            raise FencedError("sealed")

    snapshots, events = Snapshots(), []
    Copying(lambda index: snapshots, guard).save(save(), "a-0", Standing(2, 4), "/p", events.append)  # type: ignore
    assert snapshots.published == ([] if fenced else ["a-0"])
    assert ("sealed" in events[0].problem) is fenced


class Store(dict[bytes, bytes]):
    """A store that can be asked."""


def test_an_end_is_committed_once_all_is_applied_and_stands_for_every_later_owner() -> None:
    end = SourceEnd(Store())  # type: ignore[arg-type]
    assert not end.due(True)
    end.finishing = True
    assert not end.due(False)
    assert end.due(True)
    bundle = type(
        "Bundle", (), {"overlay": type("Overlay", (), {"put": lambda self, *pair: None})()}
    )
    end.commit(bundle)  # type: ignore[arg-type]
    assert not end.due(True)
    assert SourceEnd(Store({ENDED: b""})).ended  # type: ignore[arg-type]
