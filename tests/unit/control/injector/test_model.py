"""Any history of moves, splits, merges, zombies, lagging tables and restarts, against a model per
point of the space.

The model knows nothing of shards' values: for each point of the key space it keeps the highest
watermark that was reported by an owner of the point which no *announced* later owner had replaced.
An owner is announced once the injector has seen its table or has answered its report; before that
it acks nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.control.injector.effects import Broadcast, Effect, TokensConfirmed
from millwheel.control.injector.events import (
    Disconnected,
    Event,
    Longs,
    NumbersReported,
    PublishDue,
    RangesChanged,
    ReportColumns,
    ReportsArrived,
)
from millwheel.control.injector.session_directory import SessionDirectory
from millwheel.control.injector.state import InjectorState
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import SPACE, KeyRange
from millwheel.core.model.watermark import ShardReport

POINTS = 8
_WIDTH = SPACE // POINTS


@dataclass(frozen=True)
class Owner:
    """One assignment: ``order`` counts all of them, ``[lo, hi)`` are points."""

    order: int
    shard: str
    token: int
    lo: int
    hi: int

    def entry(self) -> ShardEntry:
        return ShardEntry(
            self.shard, KeyRange(self.lo * _WIDTH, self.hi * _WIDTH), f"w{self.order}", self.token
        )


class World:
    """The truth (tables), an injector that sees it late, and the model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 1
        self.connection = 0
        self.owners = [Owner(0, "n-0", 1, 0, POINTS)]
        self.current = [self.owners[0]]
        self.tables = [tuple(self.current)]
        self.restart()

    def restart(self) -> None:
        """A new injector, which reads the newest table before anything else."""
        self.state = InjectorState()
        self.connect()
        self.published: int | None = None
        self.seen = -1
        self.announced: set[Owner] = set()
        self.caps: dict[int, int] = {}
        self.see(len(self.tables) - 1)

    def connect(self) -> None:
        """A new connection, on which no owner has a number yet; the one before may end or just
        stay."""
        self.connection, before = self.connection + 1, self.connection
        self.numbers: dict[Owner, int] = {}
        if self.random.random() < 0.5:
            self.state.handle(Disconnected(before))

    def assign(self, shard: str, token: int, lo: int, hi: int) -> Owner:
        self.owners.append(Owner(len(self.owners), shard, token, lo, hi))
        return self.owners[-1]

    def fresh(self, reuse: Owner) -> tuple[str, int]:
        if self.random.random() < 0.5:
            return reuse.shard, reuse.token + 1
        self.names += 1
        return f"n-{self.names}", 1

    def move(self) -> None:
        old = self.random.choice(self.current)
        self.replace([old], [self.assign(old.shard, old.token + 1, old.lo, old.hi)])

    def split(self) -> None:
        wide = [owner for owner in self.current if owner.hi - owner.lo > 1]
        if wide:
            old = self.random.choice(wide)
            middle = self.random.randrange(old.lo + 1, old.hi)
            self.names += 1
            left = self.assign(*self.fresh(old), old.lo, middle)
            self.replace([old], [left, self.assign(f"n-{self.names + 100}", 1, middle, old.hi)])

    def merge(self) -> None:
        self.current.sort(key=lambda owner: owner.lo)
        if len(self.current) > 1:
            at = self.random.randrange(len(self.current) - 1)
            left, right = self.current[at : at + 2]
            self.replace([left, right], [self.assign(*self.fresh(left), left.lo, right.hi)])

    def replace(self, old: list[Owner], new: list[Owner]) -> None:
        self.current = [owner for owner in self.current if owner not in old] + new
        self.tables.append(tuple(self.current))

    def see_next(self) -> None:
        self.see(min(self.seen + self.random.choice([0, 1, 1, 2]), len(self.tables) - 1))

    def see(self, version: int) -> None:
        self.seen = max(self.seen, version)
        self.announced.update(self.tables[version])
        entries = tuple(owner.entry() for owner in self.tables[version])
        self.handle(RangesChanged(RangeTable("n", entries, version)))

    def report(self) -> None:
        pool = self.current if self.random.random() < 0.7 else self.owners
        some = self.random.sample(pool, self.random.randrange(1, len(pool) + 1))
        self.send([(owner, self.random.randrange(100)) for owner in some])

    def send(self, reports: list[tuple[Owner, int]]) -> None:
        """Spelled out, or by number where the owner has one on this connection."""
        numbered = [row for row in reports if row[0] in self.numbers and self.random.random() < 0.7]
        rows = [row for row in reports if row not in numbered]
        for owner, _ in rows:
            self.numbers.setdefault(owner, len(self.numbers))
        self.cap(rows)
        columns = ReportColumns.of(
            [ShardReport(owner.shard, owner.token, value) for owner, value in rows]
        )
        self.handle(ReportsArrived(self.connection, "n", columns, (), self.numbers_of(rows)))
        self.cap(numbered)
        values = np.array([value for _, value in numbered], np.int64)
        self.handle(NumbersReported(self.connection, "n", self.numbers_of(numbered), values))

    def numbers_of(self, reports: list[tuple[Owner, int]]) -> Longs:
        return np.array([self.numbers[owner] for owner, _ in reports], np.int64)

    def cap(self, reports: list[tuple[Owner, int]]) -> None:
        """No point may be published above what those of its owners have reported that count."""
        for owner, value in reports:
            for point in range(owner.lo, owner.hi):
                if not any(self.supersedes(other, owner, point) for other in self.announced):
                    self.caps[point] = max(value, self.caps.get(point, value))

    @staticmethod
    def supersedes(other: Owner, owner: Owner, point: int) -> bool:
        return other.order > owner.order and other.lo <= point < other.hi

    def handle(self, event: Event) -> None:
        for effect in (*self.state.handle(event), *self.state.handle(PublishDue())):
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, TokensConfirmed):
            known = set(effect.tokens.items())
            self.announced.update(
                owner for owner in self.owners if (owner.shard, owner.token) in known
            )
        if isinstance(effect, Broadcast):
            value = effect.watermarks["n"]
            assert self.published is None or value > self.published, "a published watermark fell"
            assert len(self.caps) == POINTS, "published although a range has not been reported"
            assert value <= min(self.caps.values()), (
                "published more than the owners of a point have reported"
            )
            self.published = value

    def settle(self) -> None:
        """The injector sees everything, and every owner reports once more."""
        self.see(len(self.tables) - 1)
        self.send([(owner, 100) for owner in self.current])
        assert self.published is not None
        assert self.published >= 100
        assert self.announced >= set(self.current)


_STEPS = (
    ["report"] * 6 + ["see_next"] * 3 + ["move", "move", "split", "merge", "restart", "connect"]
)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(_STEPS), max_size=60))
def test_published_watermarks_only_rise_and_never_pass_what_the_owners_have_reported(
    seed: int, steps: list[str]
) -> None:
    world = World(seed)
    for step in steps:
        getattr(world, step)()
    world.settle()


def test_the_model_notices_an_injector_that_believes_a_zombie() -> None:
    world = World(0)
    world.send([(world.owners[0], 10)])
    world.move()
    world.see(1)
    with pytest.raises(AssertionError, match="more than the owners"):
        world.perform(Broadcast({"n": 11}))


def test_the_model_notices_a_number_that_is_believed_under_any_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SessionDirectory, "look_up", lambda self, index, version: None)
    world = World(0)
    zombie = world.owners[0]
    world.send([(zombie, 10)])
    world.move()
    world.see(1)
    by_number = NumbersReported(
        world.connection, "n", world.numbers_of([(zombie, 11)]), np.array([11])
    )
    with pytest.raises(AssertionError, match="more than the owners"):
        world.handle(by_number)
