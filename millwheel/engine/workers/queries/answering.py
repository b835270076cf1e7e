"""Answers from the shards of a worker, within a bounded share of each step.

The loop reads the stores between two bundles, where every store is as of one commit. No other
thread may: small stores are dicts that a bundle changes, and writes that wait in memory are not in
RocksDB yet. So an answer is consistent without a lock or a snapshot, and the price is counted: a
step answers for at most ``most_us``, or one query, which reads up to 100,000 accumulators.

The state that is read may not be durable yet; a durable answer waits for its commit, like an ack. A
question that a standby may answer is answered from a copy if the shard is not served here. Pure
except for those stores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from millwheel.core.model.names import NO_WORKER, NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.times import MIN_TIME
from millwheel.engine.queries.model import (
    Answer,
    AskedQueries,
    Consistency,
    Elsewhere,
    Finding,
    Found,
    Query,
    QueryError,
)
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.effects import AnswerQueries, Gathering
from millwheel.engine.workers.ports import Copies, NoCopies
from millwheel.engine.workers.shard.shard import Shard

if TYPE_CHECKING:
    from millwheel.engine.workers.shard.shard import Shard


@dataclass(frozen=True, slots=True)
class ShardView:
    """The state of a shard between two steps. ``number`` is that of the commit which it shows;
    ``watermark_us`` that of its input as of then."""

    shard: Shard
    number: int
    watermark_us: int
    held: bool
    """Whether a step has run and waits for a verdict. It may never be committed, so answers come
    from before it: from the store, since the memory of operators may be of the step already."""

    @staticmethod
    def of(shard: Shard) -> ShardView:
        """The view of a shard as it is."""
        step = shard.commits.waiting
        held = step is not None and not step.asks
        committed = shard.meta.watermark
        watermark_us = committed if held else max(shard.watermark.input, committed)
        return ShardView(shard, shard.commits.made, max(watermark_us, MIN_TIME), held)

    def answer(self, query: Query) -> Finding:
        """The operator's answer. Raises QueryError, and any error of the operator."""
        operator = self.shard.operator
        ask = operator.answer_committed if self.held else operator.answer
        return ask(query, self.shard.store, self.watermark_us)


MOST_US = 5_000
"""The time for answers in a step (µs); then it works on the stream. The loop steps again at
once."""

_STALE = (Consistency.STANDBY, Consistency.SNAPSHOT)


class Serving(Protocol):
    """A shard that this worker serves."""

    @property
    def shard(self) -> Shard:
        """Its machine."""

    @property
    def answers(self) -> bool:
        """False once another worker may have the shard."""


@dataclass(slots=True)
class _Batch:
    """Queries that came together. ``rests_on``: by shard, the commit that durable answers show."""

    asked: AskedQueries
    outcomes: list[Found] = field(default_factory=list)
    rests_on: dict[ShardName, int] = field(default_factory=dict)


class _View:
    """The common part of all answers of a shard in one step: nothing changes meanwhile."""

    __slots__ = ("_name", "_token", "_view", "durable", "number")

    def __init__(self, shard: Shard) -> None:
        self._name, self._token = shard.identity.shard, shard.identity.token
        self._view = ShardView.of(shard)
        self.number = self._view.number
        self.durable = self.number <= shard.commits.durable

    def answer(self, query: Query) -> Answer:
        """The operator's answer, with its origin. Raises QueryError, and any error of the
        operator."""
        finding, consistency = self._view.answer(query), query.consistency
        return Answer(
            finding.values,
            finding.covered_start_us,
            finding.covered_end_us,
            self._view.watermark_us,
            finding.complete,
            self._name,
            self._token,
            self.number,
            consistency if consistency is Consistency.LATEST else Consistency.DURABLE,
        )


@dataclass(frozen=True, slots=True)
class Answering:
    """Batches that wait for their turn, and batches that wait for the disk."""

    served: Mapping[ShardName, Serving]
    router: TableRouter
    entry_of: Callable[[ShardName], ShardEntry | None]
    me: WorkerName
    out: Gathering
    monotonic_us: Callable[[], int]
    copies: Copies = field(default_factory=NoCopies)
    most_us: int = MOST_US
    waiting: deque[_Batch] = field(default_factory=deque)
    resting: deque[_Batch] = field(default_factory=deque)

    def asked(self, queries: AskedQueries) -> None:
        """Take a batch."""
        self.waiting.append(_Batch(queries))

    def step(self) -> bool:
        """Answer the queries that fit into the share of a step; True when some are left."""
        if self.waiting:
            end_us = self.monotonic_us() + self.most_us
            while self.waiting and self._go_on(self.waiting[0], end_us):
                self.resting.append(self.waiting.popleft())
        return bool(self.waiting)

    def _go_on(self, batch: _Batch, end_us: int) -> bool:
        """True once a batch is answered."""
        queries, outcomes = batch.asked.queries, batch.outcomes
        views: dict[ShardName, _View] = {}
        for index in range(len(outcomes), len(queries)):
            if outcomes and self.monotonic_us() > end_us:
                return False
            outcomes.append(self._found(queries[index], batch, views))
        return True

    def release(self) -> None:
        """Send the batches that rest on durable commits. A batch behind another one does not wait
        for it."""
        still = [batch for batch in self.resting if not self._is_durable(batch)]
        for batch in self.resting:
            if batch not in still:
                self.out.others.append(
                    AnswerQueries(batch.asked.reply, batch.outcomes, batch.rests_on)
                )
        self.resting.clear()
        self.resting.extend(still)

    def _is_durable(self, batch: _Batch) -> bool:
        for name, number in batch.rests_on.items():
            serving = self.served.get(name)
            if serving is None:  # it has left: its new owner may not have this commit
                _forget(batch, name)
            elif number > serving.shard.commits.durable:
                return False
        return True

    def _found(self, query: Query, batch: _Batch, views: dict[ShardName, _View]) -> Found:
        try:
            name = self.router.shard_of(NodeName(query.computation), query.key)
        except (TypeError, ValueError, OverflowError) as ex:  # no record can have such a key
            return QueryError("wrong_key", f"there is no such key of {query.computation}: {ex}")
        if name is None:
            return QueryError(
                "unavailable", "this worker does not have the owner of the key yet; ask again"
            )
        try:
            view = views.get(name)
            if view is None:
                serving = self.served.get(name)
                if serving is None or not serving.answers:
                    stale = self.copies.answer(name, query) if query.consistency in _STALE else None
                    return stale or self._elsewhere(name, serving, query.consistency in _STALE)
                view = views[name] = _View(serving.shard)
            if not view.durable and query.consistency is not Consistency.LATEST:
                batch.rests_on[name] = view.number
            return view.answer(query)
        except QueryError as ex:
            return ex
        except Exception as ex:  # no error of a question may end the worker
            return QueryError(
                "unavailable", f"{name} could not answer: {type(ex).__name__}: {ex}", failed=True
            )

    def _elsewhere(self, name: ShardName, serving: Serving | None, stale: bool) -> Found:
        entry = self.entry_of(name)
        if entry is None:
            return QueryError("unavailable", "the key's shard is being divided; ask again")
        if serving is not None and entry.next_owner:
            return Elsewhere(entry.next_owner, for_now=True)
        if stale and not entry.owner and entry.standby not in (NO_WORKER, self.me):
            return Elsewhere(entry.standby)
        if not entry.owner or entry.owner == self.me:
            return QueryError("unavailable", f"shard {name} is being opened; ask again")
        return Elsewhere(entry.owner, standby=entry.standby)


def _forget(batch: _Batch, name: ShardName) -> None:
    lost = QueryError(
        "unavailable", f"shard {name} left this worker before the answer was durable; ask again"
    )
    outcomes: Sequence[Found] = batch.outcomes
    batch.outcomes = [
        lost if isinstance(each, Answer) and each.shard == name else each for each in outcomes
    ]
    batch.rests_on = {shard: number for shard, number in batch.rests_on.items() if shard != name}
