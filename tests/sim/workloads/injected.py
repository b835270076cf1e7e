"""Records that programs inject, with ids: some die and come back with the same ids, send again what
was taken, and go on after the end. Behind them keys are counted, as a whole and divided."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from millwheel.adapters.grpc.injection_client import InjectionResult, OutsideRecord
from millwheel.core.pipeline.keys import Divided
from millwheel.core.pipeline.skew import planned
from millwheel.core.pipeline.spec import (
    InputSpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.engine.workers.server import WorkerService
from millwheel.errors import UnavailableError
from millwheel.tools.client.inject import Injecting
from tests.computations import computation_spec
from tests.sim.injecting import CallLimits, Sender, simulated
from tests.sim.kernel import Failure
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal
from tests.sim.workloads.numbers import DAY, Counting

if TYPE_CHECKING:
    from tests.sim.world import World

_STREAM = "clicks"
_SENDING_US = 4 * SECOND
_AWAY_US = (1_000, SECOND)
_AGAIN_US = 50_000
_ANY_DELAY_US = 3_600 * SECOND
_HORIZON_US = 2 * DAY
"""Clocks jump by an hour: no id is forgotten."""
_STEP = 97
"""Numbers are multiples of it: none is poison to :class:`Counting`."""


@dataclass(slots=True)
class Program:
    """What one program sends, in pieces, each by one of its threads; some records are in several.
    ``done`` are the pieces that it knows to be durable."""

    place: str
    pieces: list[list[OutsideRecord]]
    threads: int
    deaths: list[int]
    done: set[int] = field(default_factory=set)
    lives: int = 0

    @property
    def over(self) -> bool:
        return len(self.done) == len(self.pieces)


@dataclass(slots=True)
class Answers:
    """What all programs were told. ``good`` and ``bad`` are the ids of records that can be used,
    and of others."""

    good: dict[str, dict[str, Any]]
    bad: set[str]
    known: set[str] = field(default_factory=set)
    accepted: int = 0
    rejected: int = 0

    def take(self, records: Sequence[OutsideRecord], result: InjectionResult) -> None:
        """The answer of a worker to a request. Raises Failure when it cannot be."""
        if result.moved:
            return
        if result.accepted + result.rejected + result.duplicates != len(records):
            raise Failure(f"each record of a request is answered for: {result}, {len(records)}")
        self.accepted += result.accepted
        self.rejected += result.rejected
        self.known |= {record.id for record in records}
        if self.accepted > len(self.good) or self.rejected > len(self.bad):
            raise Failure(
                f"a record is accepted once: {self.accepted} of {len(self.good)}, and"
                f" {self.rejected} of {len(self.bad)} were rejected"
            )


class Injected(Workload):
    """See the module. In some seeds a record may be late, since its program was away; in some the
    end comes while programs are sending; and in some records have the time at which they come."""

    endless = True

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        rng = self.rng
        self.code = {"sim:Counting": Counting}
        self.settle_us = SECOND // 2
        self.ends_early = rng.random() < 0.25
        self.keys = rng.choice([1, 4, 15])
        self.size_us = rng.choice([2, 10]) * SECOND
        self.idle_us = rng.choice([None, SECOND // 2])
        self.delay_us = rng.choice([SECOND // 2, 3 * SECOND, _ANY_DELAY_US, _ANY_DELAY_US])
        self.arrival = random.Random(f"arrivals {seed}").random() < 0.25
        if self.arrival:
            self.idle_us, self.delay_us = None, 0
        self.id = rng.choice(["", "", "id"])
        self.instances = rng.choice([2, 3, 7])
        self.divided = rng.choice(list(Divided))
        self.calls = CallLimits(
            worker_s=rng.choice([0.05, 0.5, 30.0]),
            client_s=rng.choice([0.05, 0.5, 35.0]),
            waiting=rng.choice([1, 3, 224]),
            records=rng.choice([1, 3, 2_000]),
        )
        self.answers = Answers({}, set())
        self.programs = [self._program(number) for number in range(rng.randint(1, 3))]
        self._late = [self._record(len(self.programs), n) for n in range(3)]
        self._faces: dict[str, WorkerService] = {}

    def tight(self) -> AbstractContextManager[object]:
        return simulated(self.calls)

    # --- the input

    def _program(self, number: int) -> Program:
        rng = self.rng
        records = [self._record(number, n) for n in range(self.count(1, 60))]
        pieces, start = [], 0
        while start < len(records):
            # some come again with the next ones, and some later than others
            length = rng.choice([1, 3, 10])
            pieces.append(records[max(start - rng.choice([0, 0, 2]), 0) : start + length])
            start += length
        for index in range(len(pieces) - 1):
            if rng.random() < 0.2:
                pieces[index], pieces[index + 1] = pieces[index + 1], pieces[index]
        pieces += [rng.choice(pieces) for _ in range(rng.randint(0, 3))]
        deaths = sorted(rng.randint(10_000, _SENDING_US) for _ in range(rng.randint(0, 3)))
        return Program(f"c{number}", pieces, rng.choice([1, 3]), deaths)

    def _record(self, program: int, n: int) -> OutsideRecord:
        rng, name = self.rng, f"{program}-{n}"
        row = {
            "key": rng.choice(["k0", f"k{rng.randrange(self.keys)}"]),
            "n": n * _STEP,
            "p": program,
            "id": name,
            "ts": START_US + n * SECOND // 4 + rng.randint(0, SECOND),
        }
        if rng.random() < 0.03 and not self.arrival:
            del row["ts"]
            self.answers.bad.add(name)
        else:
            self.answers.good[name] = row
        return OutsideRecord(name, msgspec.json.encode(row))

    def spec(self) -> PipelineSpec:
        stream = StreamSpec(
            _STREAM,
            SourceSpec("injection"),
            timestamp="" if self.arrival else "ts",
            arrival=self.arrival,
            id=self.id,
            id_horizon_us=_HORIZON_US,
            max_delay_us=self.delay_us,
            idle_after_us=self.idle_us,
        )
        given = (InputSpec(_STREAM, by("key")),)
        counting = computation_spec(
            "counting",
            given,
            ("numbered", "rung"),
            callback="sim:Counting",
            productions=self.productions,
            max_attempts=2,
        )
        totals = computation_spec(
            "totals",
            given,
            ("totals_out",),
            window=WindowSpec("tumbling", {"size_us": self.size_us}),
            aggregates=(AggregateSpec("count", "count"), AggregateSpec("sum", "sum", "n")),
        )
        divided = replace(totals, scatter=self.instances, divided=self.divided)
        sinks = tuple(
            SinkSpec(name, "memory") for name in ("numbered", "rung", "totals_out", "dead_letters")
        )
        return planned(PipelineSpec("sim", (stream,), (counting, divided), sinks, "/nowhere"))

    # --- the programs

    def attend(self, world: World) -> None:
        """All of them begin. In a cluster that goes on from a savepoint they do so again: nobody
        knows which of the answers were given before it."""
        self._world, self._ended = world, False
        self.answers.known.clear()
        self.answers.accepted = self.answers.rejected = 0
        for program in self.programs:
            program.done.clear()
            program.lives = 0
            self._begin(world, program)

    def _begin(self, world: World, program: Program) -> None:
        if world is not self._world:
            return
        rng = random.Random(f"program {self.seed} {program.place} {program.lives}")
        left = [number for number in range(len(program.pieces)) if number not in program.done]

        def work(sender: Sender, injecting: Injecting) -> None:
            while left:
                number = left.pop(0)
                sender.sleep(rng.randint(0, 2 * _SENDING_US // len(program.pieces)))
                self._send(sender, injecting, program.pieces[number])
                program.done.add(number)

        sender = self._sender(program.place, [work] * program.threads)
        sender.on_exit.append(lambda: self._died(world, program, rng))
        if program.lives < len(program.deaths):
            world.sim.at(max(START_US + program.deaths[program.lives], world.sim.now), sender.end)
        program.lives += 1

    def _sender(self, place: str, tasks: Sequence[Callable[[Sender, Injecting], None]]) -> Sender:
        patience_s = self.rng.choice([0.2, 60.0])
        return Sender(
            self._world, place, self._faces, self.answers.take, tasks, _STREAM, patience_s
        )

    def _send(self, sender: Sender, injecting: Injecting, piece: list[OutsideRecord]) -> None:
        while True:
            try:
                injecting.send(piece)
            except UnavailableError:
                sender.sleep(_AGAIN_US)
            else:
                return

    def _died(self, world: World, program: Program, rng: random.Random) -> None:
        """A program that comes back does not know of all that was answered."""
        if program.over or world is not self._world:
            return
        program.done -= {number for number in sorted(program.done) if rng.random() < 0.2}
        world.sim.later(rng.randint(*_AWAY_US), lambda: self._begin(world, program))

    def ended(self, world: World) -> bool:
        """Once all that was sent is durable, somebody ends the stream; then others go on."""
        if not world.savepoints.finishing and all(program.over for program in self.programs):
            world.savepoints.finish(world)
        if not world.savepoints.finishing or not world.drained():
            return False
        if not self._ended:
            self._ended = True

            def work(sender: Sender, injecting: Injecting) -> None:
                self._send(sender, injecting, self._late)

            self._sender("c9", [work])
        return True

    # --- what must have come out

    def check(self) -> None:
        """Raise Failure unless each record that was acked counts once in each sink, each other one
        at most once, and none that was sent after the end."""
        late_ids = {record.id for record in self._late}
        if told := self.answers.known & late_ids:
            raise Failure(f"nothing is accepted after the end: {sorted(told)}", tuple(told))
        found = Counter(f"{row['p']}-{row['n'] // _STEP}" for row in self.sinks.rows("numbered"))
        twice = sorted(name for name, times in found.items() if times > 1)
        if twice or not found.keys() <= self.answers.good.keys() - late_ids:
            wrong = twice or sorted(found.keys() - (self.answers.good.keys() - late_ids))
            raise Failure(f"each record counts at most once, none after the end: {wrong}", wrong)
        self._check_acked(found)
        good = [self.answers.good[name] for name in found]
        if self.productions is Productions.STRONG:
            self._check_numbers(good)
        self._check_totals(good)
        self._check_letters(late_ids)

    def _check_acked(self, found: Counter[str]) -> None:
        """Only records behind what their shard had taken before may be missing."""
        missing = sorted((self.answers.known & self.answers.good.keys()) - found.keys())
        newest_us = max((self.answers.good[name]["ts"] for name in found), default=START_US)
        for name in missing:
            stamp = self.answers.good[name]["ts"]
            if self.arrival or stamp >= newest_us - self.delay_us:
                raise Failure(f"an acked record counts: {name} does not, and is not late", (name,))
        late = self._counted("late", f"source.{_STREAM}")
        if late < len(missing):
            raise Failure(f"an acked record counts: {missing} do not, {late} were late", missing)

    def _check_numbers(self, good: list[dict[str, Any]]) -> None:
        want = Counter(row["key"] for row in good)
        equal(
            "numbered",
            Counter((row["key"], row["number"]) for row in self.sinks.rows("numbered")),
            Counter((key, i + 1) for key, count in want.items() for i in range(count)),
        )

    def _check_totals(self, good: list[dict[str, Any]]) -> None:
        """What whole keys count the divided ones do, but for records that come to a silent source
        behind the watermark of others."""
        if self.arrival:
            self._check_sums(good)
            return
        windows: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in good:
            windows[row["key"], row["ts"] - row["ts"] % self.size_us].append(row["n"])
        want = Counter({(*at, len(ns), sum(ns)): 1 for at, ns in windows.items()})
        got = Counter(
            (row["key"], row["window_start"], row["count"], row["sum"])
            for row in self.sinks.rows("totals_out")
        )
        if self.idle_us is None:
            equal("totals", got, want)
            return
        count, late = sum(at[2] for at in got), self._counted("late", "totals", "partial.totals")
        if not len(good) - late <= count <= len(good):
            raise Failure(f"totals: {count} of {len(good)} records count, {late} were late")

    def _check_sums(self, good: list[dict[str, Any]]) -> None:
        """Which window a record is in is chance; it is in one, and none is late for it."""
        want, got = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for row in good:
            want += Counter({(row["key"], "count"): 1, (row["key"], "sum"): row["n"]})
        for row in (rows := self.sinks.rows("totals_out")):
            got += Counter({(row["key"], each): row[each] for each in ("count", "sum")})
        equal("totals", got, want)
        panes = Counter((row["key"], row["window_start"]) for row in rows)
        if twice := [pane for pane, times in panes.items() if times > 1]:
            raise Failure(f"no record is late: {twice[0]} closed twice", (twice[0][0],))

    def _check_letters(self, late_ids: set[str]) -> None:
        found = Counter(row["key"] for row in self.sinks.rows("dead_letters"))
        told, sent = self.answers.known & self.answers.bad, self.answers.bad - late_ids
        if max(found.values(), default=1) > 1 or not told <= found.keys() <= sent:
            raise Failure(f"each bad record is one dead letter: {found}, answered were {told}")

    def _counted(self, what: str, *nodes: str) -> int:
        """A durable counter, of all shards of these nodes."""
        world = self._world
        return sum(
            world.checkers.model.shard(entry.shard).meta.counters.get(what, 0)
            for node in nodes
            for entry in world.zookeeper.stored.tables[node].shards
        )
