"""Deliberate mistakes of standbys, which follow the journals of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from millwheel.adapters.journal import append as journal_append
from millwheel.adapters.journal import follower as journal_following
from millwheel.adapters.ports import Followed
from millwheel.control.master import state
from millwheel.control.master.tables import standbys
from millwheel.core.formats.journal_segment import JournalPosition, decode_entries
from millwheel.engine.workers.recovery import following
from millwheel.engine.workers.recovery.following import Standbys
from millwheel.errors import CorruptionError, FencedError
from tests.sim.mistakes import Context, mistake, replaced
from tests.sim.model_storage import ModelJournals
from tests.sim.standbys import StandbyTask


@mistake(within=60, faults="false-alarm session", workload="numbers", first=321)
def newest_group_believed() -> Context:
    """A follower, which looks often, applies each group as soon as it can be read, also one that
    lies behind the sealed end, where some come since writes take long."""

    def certain(since: JournalPosition, data: bytes, opened: Any, prefix: Any) -> Followed:
        groups = [decode_entries(data, body) for body in prefix.bodies]
        return Followed(
            groups, JournalPosition(since.segment, since.offset + prefix.end, prefix.next_group)
        )

    def rest(folder: Any, since: JournalPosition, upto: int) -> Iterator[list[bytes]]:
        try:
            yield from between(folder, since, upto)
        except CorruptionError:
            return

    def follow(self: Any, incarnation: str, since: JournalPosition | None) -> Followed:
        self._wait(20, 1000)
        journal = self._shared.journals[incarnation]
        first = since.group if since is not None else min(journal.groups, default=1)
        found = range(first, journal.written + 1)
        if any(number not in journal.groups for number in found):
            raise FencedError(f"{incarnation}: groups behind {first} were collected")
        return Followed(
            [journal.groups[number] for number in found], JournalPosition(found.stop, 0, found.stop)
        )

    def read(
        self: Any,
        incarnation: str,
        upto: int,
        since: JournalPosition | None = None,
        prefix: bytes = b"",
    ) -> Iterator[bytes]:
        beyond = since is not None and since.group > upto >= 0
        return iter(()) if beyond else right(self, incarnation, upto, since, prefix)

    def slowly(self: Any, incarnation: str, entries: Any) -> int:
        self._wait(500, 20_000)
        return append(self, incarnation, entries)

    def often(self: StandbyTask) -> None:
        while True:
            self._standbys.round()
            self._worker.sleep(self._worker.sim.delay(100, 1_000))

    between, right, append = (
        journal_following.groups_between,
        ModelJournals.read,
        ModelJournals.append,
    )

    @contextmanager
    def all_of_it() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(replaced(journal_following, "_without_newest", certain))
            stack.enter_context(replaced(journal_append, "groups_between", rest))
            stack.enter_context(replaced(ModelJournals, "follow", follow))
            stack.enter_context(replaced(ModelJournals, "read", read))
            stack.enter_context(replaced(ModelJournals, "append", slowly))
            stack.enter_context(replaced(StandbyTask, "_run", often))
            yield

    return all_of_it()


@mistake(within=60, faults="kill zombie cut", first=19)
def follower_skips_a_gap() -> Context:
    """When segments were deleted before they were followed, a follower goes on with those that are
    left."""

    def advance(self: Standbys, owner: str, followers: Any) -> bool:
        try:
            found = self._parts.journals.follow(owner, self._positions.get(owner))
        except (CorruptionError, FencedError):
            found = Followed([], None)
        self._positions[owner] = found.position
        for follower in followers:
            following._apply(
                follower, [entry for group in found.groups for entry in group], found.position
            )
        return False

    def apply(commit: Any, incarnation: str, store: Any, have: int) -> Any:
        if commit.number > have:
            store.apply(commit.puts, commit.deletes)
        return max(have, commit.number)

    @contextmanager
    def both() -> Iterator[None]:
        with replaced(Standbys, "_advance", advance), replaced(following, "apply", apply):
            yield

    return both()


@mistake(within=60, faults="kill kill-in-a-call", first=25)
def rest_of_the_journal_not_read() -> Context:
    """A takeover ends with what was followed."""
    return replaced(Standbys, "_rest", lambda self, follower, ancestor: follower.have)


@mistake(within=20, faults="host")
def standby_beside_its_owner() -> Context:
    """A spare is preferred to a worker on another host, and the host of the owner to all others."""
    right = standbys.chosen

    def wrong(tables: Any, hosts: Any, serving: Any) -> Any:
        found = right(tables, hosts, serving)
        owners = {
            (table.computation, entry.shard): entry.owner
            for table in tables
            for entry in table.shards
        }
        for shard in found:
            owner = owners[shard]
            beside = [
                name for name in sorted(hosts) if name != owner and hosts[name] == hosts.get(owner)
            ]
            found[shard] = beside[0] if beside else found[shard]
        return found

    return replaced(state, "chosen", wrong)
