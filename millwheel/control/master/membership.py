"""Living and dead workers, and the steps that a death requires. Pure, as ``state.py`` is.

Death is final: an incarnation is never used again, so a false alarm costs only a restart of that
worker. A dead worker goes through seal, removal from the membership, and collection of its journal.
Workers that die together are sealed in the order of their names, so that the same events give the
same effects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from millwheel.control.master.effects import (
    AttachWorker,
    CollectJournal,
    DetachWorker,
    RemoveMember,
    SealJournal,
)
from millwheel.control.master.events import Member
from millwheel.core.model.names import WorkerName
from millwheel.errors import invariant


class Membership:
    """The workers of one pipeline as the master sees them."""

    def __init__(self) -> None:
        self._members: dict[WorkerName, Member] | None = None
        self._dead: dict[WorkerName, int | None] = {}
        self._reasons: dict[WorkerName, str] = {}
        self._sealing: set[WorkerName] = set()
        self._seal_failed: set[WorkerName] = set()
        self._removing: set[WorkerName] = set()
        self._attached: set[WorkerName] = set()
        self._collected: set[WorkerName] = set()
        self._unknown: frozenset[WorkerName] = frozenset()
        self._hosts: dict[WorkerName, str] = {}

    @property
    def received(self) -> bool:
        """Whether the members have arrived. Before that, the absence of a worker proves nothing."""
        return self._members is not None

    @property
    def dead(self) -> Mapping[WorkerName, int | None]:
        """The dead workers, each with the end of its sealed journal, or None while the journal is
        open."""
        return self._dead

    @property
    def hosts(self) -> Mapping[WorkerName, str]:
        """The host of each worker, dead ones included until they are removed."""
        return self._hosts

    def live(self) -> dict[WorkerName, Member]:
        """Members that have not been found dead."""
        return {
            name: member for name, member in (self._members or {}).items() if name not in self._dead
        }

    def eligible(self) -> set[WorkerName]:
        """The workers that may be given shards."""
        return {name for name, member in self.live().items() if not member.leaving}

    def hosts_of_eligible(self) -> dict[WorkerName, str]:
        """The workers that may be given shards, each with its host."""
        return {name: member.host for name, member in self.live().items() if not member.leaving}

    def weights(self) -> dict[WorkerName, int]:
        """The weight of each living worker."""
        return {name: member.weight for name, member in self.live().items()}

    def suspects(self) -> set[str]:
        """The hosts of dead workers that are still members: they died a moment ago."""
        return {member.host for name, member in (self._members or {}).items() if name in self._dead}

    def leaving(self) -> set[WorkerName]:
        """The living workers whose shards must move to others."""
        return {name for name, member in self.live().items() if member.leaving}

    def take(self, members: Collection[Member]) -> bool:
        """Store the present members; True if anything changed."""
        before = self._members
        self._members = {member.incarnation: member for member in members}
        self._hosts.update((member.incarnation, member.host) for member in members if member.host)
        for gone in sorted((before or {}).keys() - self._members.keys()):
            self.declare_dead(gone, "its membership ended")
        for late in sorted(self._collected & self._members.keys()):
            self._collected.discard(late)
            self.declare_dead(late, "its journal was left over before it joined")
        self._removing &= self._members.keys()
        return self._members != before

    def declare_dead(self, incarnation: WorkerName, reason: str) -> None:
        """Count a worker as dead from now on."""
        if incarnation not in self._dead:
            self._dead[incarnation] = None
            self._reasons[incarnation] = reason

    def declare_absent_dead(self, mentioned: Collection[WorkerName]) -> None:
        """Count each worker in ``mentioned`` that is not a member as dead."""
        for incarnation in sorted(mentioned):
            if incarnation not in (self._members or {}) and incarnation not in self._collected:
                self.declare_dead(incarnation, "a range table names it and it is not a member")

    def sealed(self, incarnation: WorkerName, end: int) -> None:
        """The journal of a dead worker is closed."""
        self._sealing.discard(incarnation)
        # A table may name the first end already: by another one, the next owners of two shards
        # would apply different groups of one journal.
        before = self._dead.get(incarnation)
        invariant(
            before is None or before == end,
            f"the journal of {incarnation} was sealed at {before}, and now at {end}",
        )
        self.declare_dead(incarnation, "its journal is sealed")
        self._dead[incarnation] = end

    def seal_failed(self, incarnation: WorkerName) -> None:
        """The seal failed; the journal counts as being sealed until the next try is due."""
        self._seal_failed.add(incarnation)

    def try_again(self) -> None:
        """Allow another try of the seals that failed."""
        self._sealing -= self._seal_failed
        self._seal_failed.clear()

    def journals_found(self, incarnations: Collection[WorkerName]) -> None:
        """Take the journals on the root. If the worker of a journal is unknown twice in a row, it
        died before this master was elected. Once is not enough, because a worker opens its journal
        before it joins."""
        unknown = (
            frozenset(incarnations)
            - (self._members or {}).keys()
            - self._dead.keys()
            - self._collected
        )
        for incarnation in sorted(unknown & self._unknown):
            self.declare_dead(incarnation, "its journal is left over")
        self._unknown = unknown - self._unknown
        self._collected &= set(incarnations)

    def validate(self) -> None:
        """Raise InvariantError unless each worker is in one stage of its life. For tests."""
        dead = self._dead.keys()
        invariant(
            self._reasons.keys() == dead,
            f"the dead are {sorted(dead)}, reasons have {sorted(self._reasons)}",
        )
        sealed = {name for name, end in self._dead.items() if end is not None}
        invariant(
            not self._sealing & sealed,
            f"sealed journals are being sealed: {sorted(self._sealing & sealed)}",
        )
        invariant(
            self._sealing <= dead,
            f"journals of the living are being sealed: {sorted(self._sealing - dead)}",
        )
        open_ones = self._removing - sealed
        invariant(
            not open_ones,
            f"members are removed before their journals are sealed: {sorted(open_ones)}",
        )

    # --- effects, each given once

    def lines(self) -> Iterator[AttachWorker | DetachWorker]:
        """Attach the living workers and detach all others."""
        live = self.live()
        for name in sorted(self._attached - live.keys()):
            self._attached.discard(name)
            yield DetachWorker(incarnation=name)
        for name in sorted(live.keys() - self._attached):
            self._attached.add(name)
            yield AttachWorker(incarnation=name, address=live[name].address)

    def seals(self, owners: Collection[WorkerName]) -> Iterator[SealJournal]:
        """Seal the journal of each dead worker, whether it owned shards or not; of one that did,
        before all others."""
        for name, end in sorted(self._dead.items(), key=lambda item: item[0] not in owners):
            if end is None and name not in self._sealing:
                self._sealing.add(name)
                yield SealJournal(
                    incarnation=name, reason=self._reasons[name], urgent=name in owners
                )

    def removals(self, owners: Collection[WorkerName]) -> Iterator[RemoveMember]:
        """End the membership of dead workers that no longer own anything."""
        for name, end in list(self._dead.items()):
            if (
                end is not None
                and name in (self._members or {})
                and name not in owners
                and name not in self._removing
            ):
                self._removing.add(name)
                yield RemoveMember(incarnation=name)

    def collections(self, mentioned: Collection[WorkerName]) -> Iterator[CollectJournal]:
        """Delete the journals of dead workers that no table names, and drop these workers."""
        for name, end in list(self._dead.items()):
            if end is not None and name not in (self._members or {}) and name not in mentioned:
                del self._dead[name], self._reasons[name]
                self._hosts.pop(name, None)
                self._collected.add(name)
                yield CollectJournal(incarnation=name)
