"""Questions that outsiders ask while things go wrong, and what must be true of every answer.

The checker does not read stores. It remembers which records each bundle was given; the bundles of
commits that count are what an answer at a commit number must be made of.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from millwheel.core.model.range_table import Parent, RangeTable
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.core.slices.slots import slot_hash
from millwheel.engine.queries.model import (
    Answer,
    AskedQueries,
    Consistency,
    Elsewhere,
    Found,
    Mode,
    Query,
)
from millwheel.engine.queries.server import LEASE_S
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.shard.shard import Shard
from millwheel.errors import MillwheelError
from tests.sim.kernel import SECOND, START_US, Failure
from tests.sim.model import CommitModel

if TYPE_CHECKING:
    from tests.sim.worker import SimWorker
    from tests.sim.world import World

_LEASE_US = int(LEASE_S * SECOND)
_APART_US = (2_000, 60_000)
_HOPS = 3


class AppliedRecord(NamedTuple):
    """A record as a bundle was given it. ``late``: its slice had expired by the bundle's
    watermark."""

    key: Any
    timestamp_us: int
    n: int
    id: tuple[int, int]
    late: bool


@dataclass(slots=True)
class AnswersAreOfTheirCommit:
    """An answer holds exactly the records of its span that the commits up to its number applied. A
    durable one, or that of a standby, shows only commits that count, and none leaves a worker a
    lease after its journal was sealed."""

    model: CommitModel
    applied: dict[tuple[str, int, int], list[AppliedRecord]] = field(default_factory=dict)
    parents: dict[str, tuple[Parent, ...]] = field(default_factory=dict)
    begins_with: dict[str, list[AppliedRecord]] = field(default_factory=dict)
    of_parents: dict[Parent, list[AppliedRecord]] = field(default_factory=dict)
    sealed_us: dict[str, int] = field(default_factory=dict)
    newest: dict[tuple[str, Any], dict[int, int]] = field(default_factory=dict)
    """Of a shard and key: where the newest window began, as of a commit."""
    answered: int = 0
    by_standbys: int = 0
    asked: str = ""
    """The computation that is asked: only its values are as this checker expects them."""
    hashed: Callable[[Any], int] = slot_hash
    """The hash of a key of that computation."""

    def begins(self, shard: Shard, bundle: Any, spec: SlicesSpec | None) -> None:
        """A bundle of a shard that is asked is about to run; with slices, ``spec`` is theirs."""
        operator: Any = shard.operator
        expires = spec is not None and bundle.watermark != MAX_TIME
        expired_us = bundle.watermark - spec.keep_us if expires and spec else -(2**63)
        every_us = spec.levels_us[0] if spec else 1
        found = []
        for arrival in bundle.arrivals:
            batch = arrival.batch.rows()
            values = getattr(operator, "_rows", operator)._decode(batch.stream, batch.values)
            for key, value, at_us in zip(batch.keys, values, batch.timestamps, strict=True):
                if type(value["n"]) is not int:  # it cannot be added up, and becomes a dead letter
                    continue
                late = at_us - at_us % every_us + every_us <= expired_us
                found.append(
                    AppliedRecord(key, at_us, value["n"], (value.get("p"), value["n"]), late)
                )
        identity = shard.identity
        self.applied[identity.shard, identity.token, bundle.number] = found

    def written(self, table: RangeTable) -> None:
        """A range table is stored: later ones name the parents of a shard no more."""
        for entry in table.shards:
            if entry.parents:
                self.parents.setdefault(entry.shard, entry.parents)

    def records(self, shard: str, token: int, number: int) -> Iterator[AppliedRecord]:
        """What the commits up to ``number`` applied; those that do not count yet are the owner's
        under ``token``."""
        yield from self.begins_with.get(shard, ())
        for parent in self.parents.get(shard, ()):
            yield from self._inherited(parent)
        tokens = self.model.shard(shard).tokens
        for each in range(1, number + 1):
            yield from self.applied.get((shard, tokens.get(each, token), each), ())

    def _inherited(self, parent: Parent) -> list[AppliedRecord]:
        """What a parent has applied. Its journal is sealed, so this is looked up once: ranges that
        often split and merge have hundreds of ancestors."""
        if parent not in self.of_parents:
            # Two parents may come of one shard: each had only what lies in its own range.
            theirs = self.records(parent.shard, parent.token, parent.last_commit)
            self.of_parents[parent] = [
                record for record in theirs if self.hashed(record.key) in parent.range
            ]
        return self.of_parents[parent]

    def left(self, worker: SimWorker, query: Query, answer: Answer, spec: SlicesSpec) -> None:
        """An answer from slices leaves a worker."""
        about = self._left(worker, answer)
        self._span_is_right(query, answer, spec, about)
        self._content_is_right(query, answer, about)

    def window_left(self, worker: SimWorker, query: Query, answer: Answer, size_us: int) -> None:
        """An answer from tumbling windows leaves a worker: all that are open, or the newest that
        has fired. Each holds the records of its span, and none that cannot have fired yet is
        missing."""
        about = (*self._left(worker, answer), str(query.key))
        held: defaultdict[int, list[int]] = defaultdict(list)
        for record in self.records(answer.shard, answer.token, answer.commit):
            if record.key == query.key:
                held[record.timestamp_us - record.timestamp_us % size_us].append(record.n)
        missing: set[int] = set()
        if query.mode is Mode.OPEN:
            found: list[Mapping[str, Any]] = answer.values["windows"]  # type: ignore[assignment]
            shown = {each["window_start"] for each in found}
            missing = {start for start in held if start + size_us > answer.watermark_us} - shown
        else:
            found = [{"window_start": answer.covered_start_us, **answer.values}]
            self._never_falls(query, answer, about)
        if missing:
            raise Failure(
                f"open windows are answered: {query} lacks {missing} at commit {answer.commit}",
                about,
            )
        for each in found:
            ns = held[each["window_start"]]
            if (each["count"], each["sum"]) != (len(ns), sum(ns)):
                raise Failure(
                    f"answers are of their commit: {query} is {each} at commit {answer.commit} of"
                    f" {answer.shard}, whose records are {ns}",
                    about,
                )

    def _never_falls(self, query: Query, answer: Answer, about: Sequence[str]) -> None:
        """The newest result of a key is not of an older window as of a later commit, once it is
        durable."""
        if answer.consistency is Consistency.LATEST:
            return
        assert answer.covered_start_us is not None
        known = self.newest.setdefault((answer.shard, query.key), {})
        for commit, start_us in known.items():
            earlier, later = sorted([(commit, start_us), (answer.commit, answer.covered_start_us)])
            if earlier[1] > later[1]:
                raise Failure(
                    f"newest results are of no older window later: {query}: {earlier}, then"
                    f" {later}",
                    about,
                )
        known[answer.commit] = answer.covered_start_us

    def _left(self, worker: SimWorker, answer: Answer) -> tuple[str, str]:
        self.answered += 1
        about = (worker.name, answer.shard)
        sealed_us = self.sealed_us.get(worker.name)
        # The clocks of processes drift by far less than a tenth.
        if sealed_us is not None and worker.sim.now > sealed_us + _LEASE_US * 11 // 10:
            raise Failure(
                f"no zombie answers: {worker.name} was sealed and answers for {answer.shard}", about
            )
        self.by_standbys += answer.consistency is Consistency.STANDBY
        if answer.consistency is not Consistency.LATEST:
            self._is_durable(answer, about)
        return about

    def _is_durable(self, answer: Answer, about: Sequence[str]) -> None:
        model = self.model.shard(answer.shard)
        owner = model.tokens.get(answer.commit, answer.token)
        if answer.commit > model.number or owner > answer.token:
            raise Failure(
                f"{answer.consistency.value} answers are durable: {answer.shard} answers under"
                f" token {answer.token} with commit {answer.commit}; {model.number} are durable,"
                f" and that one was made under token {owner}",
                about,
            )

    def _span_is_right(
        self, query: Query, answer: Answer, spec: SlicesSpec, about: Sequence[str]
    ) -> None:
        start_us, end_us, every_us = (
            answer.covered_start_us,
            answer.covered_end_us,
            spec.levels_us[0],
        )
        assert start_us is not None
        assert end_us is not None
        assert query.window_us is not None
        assert query.until_us is not None
        wanted_us = query.until_us - query.window_us
        if (
            start_us != wanted_us - wanted_us % every_us
            or not query.until_us <= end_us < query.until_us + every_us
        ):
            raise Failure(
                f"a window is covered whole: {query} is answered for [{start_us}, {end_us})", about
            )
        if (
            answer.watermark_us != MAX_TIME
            and start_us + every_us <= answer.watermark_us - spec.keep_us
        ):
            raise Failure(
                f"what has expired is not answered: {query} at watermark {answer.watermark_us}",
                about,
            )
        if answer.complete and answer.watermark_us < end_us:
            raise Failure(
                f"complete spans are over: {query} at watermark {answer.watermark_us}", about
            )

    def _content_is_right(self, query: Query, answer: Answer, about: Sequence[str]) -> None:
        start_us, end_us = answer.covered_start_us, answer.covered_end_us
        assert start_us is not None
        assert end_us is not None
        of_it = [
            record.n
            for record in self.records(answer.shard, answer.token, answer.commit)
            if record.key == query.key
            and start_us <= record.timestamp_us < end_us
            and not record.late
        ]
        want = {"count": len(of_it), "sum": sum(of_it)}
        if dict(answer.values) != want:
            raise Failure(
                f"answers are of their commit: {query} is {dict(answer.values)} at commit"
                f" {answer.commit} of {answer.shard}, its records make {want}",
                (*about, str(query.key)),
            )


class Asking:
    """Outsiders who ask workers for slices, one question after the other, and go where they are
    sent."""

    def __init__(self, world: World, spec: SlicesSpec, name: str, keys: Sequence[str]) -> None:
        self._world, self._spec, self._name, self._keys = world, spec, name, keys
        self._rng = random.Random(f"questions {world.workload.seed}")
        self._leases: dict[str, AnswerLease] = {}
        world.checkers.answers.asked = name
        world.checkers.answers.hashed = world.graph.hash_of(name)
        world.sim.later(0, self._ask)

    def _ask(self) -> None:
        rng, sim = self._rng, self._world.sim
        workers = self._world.alive("w")
        if workers:
            worker = rng.choice(workers)
            # Those that were declared dead and do not know it yet are asked, too, by clients that
            # do not know it.
            self._send(worker, self._question(), _HOPS)
        sim.later(rng.randint(*_APART_US), self._ask)

    def _question(self) -> Query:
        rng = self._rng
        until_us = START_US + rng.randint(-70 * SECOND, 110 * SECOND)
        window_us = rng.randint(1, self._spec.keep_us)
        consistency = rng.choice(list(Consistency))
        return Query(
            self._name, rng.choice(self._keys), window_us, until_us, Mode.COVERING, consistency
        )

    def _send(self, worker: SimWorker, query: Query, hops: int) -> None:
        if worker.runtime is None or not worker.alive:
            return
        lease = self._leases.setdefault(worker.name, AnswerLease(worker))
        worker.post(
            ev.QueriesCame(
                AskedQueries(
                    [query],
                    lambda found: lease.leave(lambda: self._told(worker, query, found, hops)),
                )
            )
        )

    def _told(self, worker: SimWorker, query: Query, found: Sequence[Found], hops: int) -> None:
        (one,) = found
        if isinstance(one, Elsewhere):
            owner = self._world.workers.get(one.owner)
            if owner is not None and hops:
                self._world.sim.later(100, lambda: self._send(owner, query, hops - 1))
        elif isinstance(one, Answer):
            self._judge(worker, query, one)

    def _judge(self, worker: SimWorker, query: Query, answer: Answer) -> None:
        self._world.checkers.answers.left(worker, query, answer, self._spec)


class AskingWindows(Asking):
    """The same for tumbling windows of one length: the open ones, and the newest that has fired."""

    def __init__(self, world: World, size_us: int, name: str, keys: Sequence[str]) -> None:
        super().__init__(world, SlicesSpec((size_us,), size_us), name, keys)
        self._size_us = size_us

    def _question(self) -> Query:
        rng = self._rng
        mode = rng.choice([Mode.OPEN, Mode.COVERING])
        return Query(
            self._name, rng.choice(self._keys), None, None, mode, rng.choice(list(Consistency))
        )

    def _judge(self, worker: SimWorker, query: Query, answer: Answer) -> None:
        self._world.checkers.answers.window_left(worker, query, answer, self._size_us)


class AnswerLease:
    """What :class:`millwheel.engine.queries.server.QueryServer` does before answers leave: a look
    at the journal's seal, now or within the last lease."""

    def __init__(self, worker: SimWorker) -> None:
        self._worker = worker
        self._looked_us = -_LEASE_US

    def leave(self, told: Any) -> None:
        """``told`` is called unless the worker has been replaced."""
        if self._is_fresh():
            told()
        else:
            self._worker.spawn(lambda: self._look(told))

    def _is_fresh(self) -> bool:
        return self._worker.clock.monotonic_us() - self._looked_us < _LEASE_US

    def _look(self, told: Any) -> None:
        began_us = self._worker.clock.monotonic_us()
        journal = self._worker.journal
        assert journal is not None
        try:
            journal.check()
        except MillwheelError:
            return
        self._looked_us = began_us
        told()
