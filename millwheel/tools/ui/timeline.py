"""The events of a run's workers, derived from the coordinator's data. Pure: the time is an
argument."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

KEPT = 200
"""Events that are kept: the newest."""
_TOGETHER_MS = 5_000  # between moves that are shown as one
_NEWS_MS = 10_000  # by which news of the death of a worker may come behind that of its shards


class Happening(msgspec.Struct, frozen=True):
    """One event. ``at_ms`` is the wall clock (ms since 1970). ``kind`` is run, joined, gone, moved
    or recovered."""

    at_ms: int
    kind: str
    words: str


class Timeline:
    """Compares each state with the one before. The first state is only the start of the comparison
    and gives no events."""

    def __init__(self) -> None:
        self.events: list[Happening] = []
        self._slots: Mapping[str, int] | None = None
        self._owners: dict[str, str] = {}
        self._lost: dict[str, tuple[str, int]] = {}
        """Shards without a living owner: the former owner, and the time of its loss."""
        self._taken: dict[str, tuple[str, int]] = {}
        """Shards that have left a member without a plan: it may be dead already. The former owner,
        and when."""
        self._moving: tuple[tuple[Happening, str, str] | None, int, int] = None, 0, 0
        """The last event, if it is a move, with its source and target; when, and of how many
        shards."""

    def add(self, kind: str, words: str, at_ms: int) -> None:
        """Add an event that was observed elsewhere."""
        self.events = [*self.events[1 - KEPT :], Happening(at_ms, kind, words)]

    def workers(self, slots: Mapping[str, int], at_ms: int) -> None:
        """The workers that are members now, with their slots, by incarnation."""
        before, self._slots = self._slots, dict(slots)
        if before is None:
            return
        for name in sorted(before.keys() - slots.keys()):
            shards = [shard for shard, owner in self._owners.items() if owner == name]
            shards += [
                shard
                for shard, (owner, since_ms) in self._taken.items()
                if owner == name and at_ms - since_ms <= _NEWS_MS
            ]
            self._lost.update(dict.fromkeys(shards, (name, at_ms)))
            waiting = f"; {_shards(len(shards))} wait for another owner" if shards else ""
            self.add("gone", f"worker {before[name]} is gone ({name}){waiting}", at_ms)
        for name in sorted(slots.keys() - before.keys()):
            self.add("joined", f"worker {slots[name]} has joined ({name})", at_ms)
        self._settle(at_ms)

    def table(
        self,
        owners: Mapping[str, str],
        gone: Collection[str],
        at_ms: int,
        planned: Collection[str] = (),
    ) -> None:
        """The owners of the shards of one node now; ``gone`` are shards that were split or merged
        away, ``planned`` those of which a move was announced."""
        moves: Counter[tuple[str, str]] = Counter()
        for shard, owner in owners.items():
            before = self._owners.get(shard, "")
            if before and owner and before != owner and shard not in self._lost:
                moves[before, owner] += 1
                if shard not in planned:
                    self._taken[shard] = before, at_ms
        for (source, target), count in sorted(moves.items()):
            self._move(source, target, count, at_ms)
        self._owners.update(owners)
        for shard in gone:
            self._owners.pop(shard, None)
            self._lost.pop(shard, None)
            self._taken.pop(shard, None)
        self._settle(at_ms)

    def _move(self, source: str, target: str, count: int, at_ms: int) -> None:
        """Add the move of a shard. Shards move one by one; moves in close succession are one
        event."""
        before, since_ms, so_far = self._moving
        if (
            self.events
            and before == (self.events[-1], source, target)
            and at_ms - since_ms <= _TOGETHER_MS
        ):
            self.events = self.events[:-1]
            count += so_far
        self.add("moved", f"{_shards(count)} moved from {source} to {target}", at_ms)
        self._moving = (self.events[-1], source, target), at_ms, count

    def _settle(self, at_ms: int) -> None:
        """Add an event for each lost worker whose shards all have living owners again."""
        alive = self._slots or {}
        back = {shard for shard in self._lost if self._owners.get(shard) in alive}
        for name in sorted({self._lost[shard][0] for shard in back}):
            if any(
                worker == name for shard, (worker, _) in self._lost.items() if shard not in back
            ):
                continue
            lost_shards = {
                shard: since for shard, (worker, since) in self._lost.items() if worker == name
            }
            took_s = (at_ms - min(lost_shards.values())) / 1000
            owners = ", ".join(sorted({self._owners[shard] for shard in lost_shards}))
            self.add(
                "recovered",
                f"{_shards(len(lost_shards))} of {name} went to {owners} within {took_s:.1f} s",
                at_ms,
            )
            for shard in lost_shards:
                del self._lost[shard]
                self._taken.pop(shard, None)


def _shards(count: int) -> str:
    return f"{count} shard" if count == 1 else f"{count} shards"
