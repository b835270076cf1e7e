"""Sends questions to workers until there is a reply or the deadline has passed: follows MOVED and
ASK, retries, and turns to another worker when one is silent. For one asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from millwheel.engine.queries.health import POOR, degree_in
from millwheel.engine.queries.link import LinkClosed, Links, packed
from millwheel.engine.queries.model import CODES, Query, QueryError

# before the next attempt after TRYAGAIN: a shard opens in about this time
_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.1
_PATIENCE = 8
"""A worker that has not replied within 1/8 of the deadline counts as silent, if another one could
be asked."""
_PATIENCE_S = 0.25
"""The upper bound of that time: a long deadline does not justify a long wait for a silent
worker."""
_SUSPECT_S = 1.0
"""For this long, a silent worker is asked after all others. The others answer meanwhile; one
question suffices to notice that it is back."""
_TRIES = 3
"""After this many attempts without an answer from the owner of a key, no worker is about to open
its shard."""
_GONE = "no worker answered in time: "


def no_others() -> Sequence[str]:
    """No other worker could answer."""
    return ()


def unknown_owner() -> str:
    """No table shows the owner of the key."""
    return ""


@dataclass(slots=True)
class Asking:
    """One question on its way. ``address`` is the worker to ask next; "" means one of ``others``.
    With ``stale``, those may answer from a standby's state if the owner is silent. ``why`` is the
    latest obstacle."""

    command: bytes
    address: str
    others: Callable[[], Sequence[str]] = no_others
    snapshot_readers: Callable[[], Sequence[str]] = no_others
    """The workers that could answer from a snapshot if none of the former does."""
    tried: int = 0
    stale: bytes = b""
    owner: Callable[[], str] = unknown_owner
    """The worker that has the key by the current tables, which may change while the question waits:
    the asking process may not have had the tables yet, and the owner may die."""
    known_owner: str = ""
    elsewhere: bool = False
    """The owner of the key cannot answer at the moment: others are asked next."""
    late: dict[str, asyncio.Future[list[Any]]] = field(default_factory=dict)
    """Calls to silent workers that are still open, by address: a slow answer may yet come."""
    why: str = "no worker has the key at the moment"
    reply: bytes | QueryError | None = None


@dataclass(slots=True)
class Workers:
    """Asks workers. ``suspects`` were silent and ``poor`` ones are unhealthy; both are asked last
    until the moment that is noted for each (monotonic, s)."""

    links: Links
    suspects: dict[str, float] = field(default_factory=dict)
    poor: dict[str, float] = field(default_factory=dict)

    async def ask(self, questions: Sequence[Asking], deadline_s: float) -> None:
        """Fill in the replies, JSON or an error, within ``deadline_s``."""
        try:
            await self._ask(questions, deadline_s)
        finally:
            for call in {call for each in questions for call in each.late.values()}:
                call.cancel()

    async def _ask(self, questions: Sequence[Asking], deadline_s: float) -> None:
        end_s, pause_s = monotonic() + deadline_s, _PAUSE_S
        waiting = list(questions)
        while True:
            hasty = await self._round(waiting, end_s, min(deadline_s / _PATIENCE, _PATIENCE_S))
            waiting = [each for each in waiting if each.reply is None]
            if not waiting:
                return
            left_s = end_s - monotonic()
            if left_s <= 0:
                break
            if not hasty:  # some were redirected: they need no pause
                await asyncio.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                # a late reply may have come
                waiting = [each for each in waiting if each.reply is None]
        for each in waiting:
            each.reply = QueryError("unavailable", _GONE + each.why)

    async def _round(self, waiting: Sequence[Asking], end_s: float, patience_s: float) -> bool:
        groups: dict[tuple[str, bool], list[Asking]] = {}
        for each in waiting:
            if (target := self._chosen(each)) is not None:
                groups.setdefault(target, []).append(each)
        calls = [self._call(target, group, end_s, patience_s) for target, group in groups.items()]
        return any(await asyncio.gather(*calls))

    def _chosen(self, asking: Asking) -> tuple[str, bool] | None:
        """The worker to ask, and whether for a standby's state."""
        if (owner := asking.owner()) != asking.known_owner:
            asking.known_owner = asking.address = owner
            asking.elsewhere = False
        address, free = asking.address, asking.address not in asking.late
        if address and free and not asking.elsewhere and not self._is_suspect(address):
            return address, False
        others = [*asking.others()]
        if self._is_suspect(address) or asking.tried >= _TRIES:
            others += asking.snapshot_readers()
        others = [
            each
            for each in others
            if each not in (address, *asking.late) and not self._is_suspect(each)
        ]
        if others:
            return others[0], bool(address)
        return (address, False) if address and free else None

    def _is_suspect(self, address: str) -> bool:
        return max(self.suspects.get(address, 0.0), self.poor.get(address, 0.0)) > monotonic()

    def suspect(self, address: str) -> None:
        """Note that a worker is silent: for a while, it is asked last."""
        self.suspects[address] = monotonic() + _SUSPECT_S

    async def _call(
        self, target: tuple[str, bool], group: Sequence[Asking], end_s: float, patience_s: float
    ) -> bool:
        """One call to one worker. True when some of its questions are to be sent elsewhere at
        once."""
        address, stale = target
        if address in self.suspects:
            self.suspect(address)  # this call tests it; the other calls need not wait as well
        commands = [each.stale if stale and each.stale else each.command for each in group]
        left_s = max(end_s - monotonic(), 0.001)
        alone = all(not each.others() and not each.snapshot_readers() for each in group)
        call = asyncio.ensure_future(self.links.call(address, commands))
        try:
            await asyncio.wait([call], timeout=left_s if alone else min(left_s, patience_s))
        except asyncio.CancelledError:
            call.cancel()
            raise
        if not call.done():
            self._silent(address, call, group)
            return not alone
        try:
            replies = call.result()
        except LinkClosed as ex:
            self.suspect(address)
            for each in group:
                each.why = str(ex)
            return not alone
        self.suspects.pop(address, None)
        taken = [self._take(each, reply) for each, reply in zip(group, replies, strict=True)]
        return any(taken)

    def _silent(
        self, address: str, call: asyncio.Future[list[Any]], group: Sequence[Asking]
    ) -> None:
        """Ask other workers from now on, and keep this call. Its questions may take long on every
        worker, and then repeated attempts would never end; so the first answer counts, whichever
        worker gives it."""
        self.suspect(address)
        for each in group:
            each.late[address], each.why = call, f"{address} is silent"
        call.add_done_callback(lambda done: self._came(address, done, group))

    def _came(self, address: str, call: asyncio.Future[list[Any]], group: Sequence[Asking]) -> None:
        for each in group:
            each.late.pop(address, None)
        if call.cancelled() or call.exception() is not None:
            return
        self.suspects.pop(address, None)
        for each, reply in zip(group, call.result(), strict=True):
            if each.reply is None:
                self._take(each, reply)

    def _take(self, asking: Asking, reply: Any) -> bool:
        """Note a reply. True when it is a redirection."""
        if isinstance(reply, bytes):
            asking.reply = reply
            return False
        kind, _, rest = str(reply).partition(" ")
        if kind in ("MOVED", "ASK"):
            address = rest.rpartition(" ")[2]
            # a worker that redirects to itself is not ready: wait for it
            moved = address != asking.address
            asking.address, asking.elsewhere, asking.why = (
                address,
                False,
                f"the key is with {address}",
            )
            return moved and (
                address not in self.suspects or bool(asking.others() or asking.snapshot_readers())
            )
        if kind == "TRYAGAIN":
            asking.why = rest
            asking.tried += 1
            others = asking.others() or (asking.tried >= _TRIES and asking.snapshot_readers())
            asking.elsewhere = not asking.elsewhere and bool(others)
            return asking.elsewhere
        asking.reply = error_of(str(reply))
        return False


def error_of(line: str) -> QueryError:
    """The error in an error line of the protocol."""
    kind, _, rest = line.partition(" ")
    code, _, sentence = rest.partition(": ")
    if kind == "ERR" and code in CODES and sentence:
        return QueryError(code, sentence)
    return QueryError("unavailable", rest if kind == "ERR" else line)


def command_of(query: Query, key: str, options: Mapping[str, str] | None = None) -> bytes:
    """MW.QUERY for a question; ``key`` is its key as text, ``options`` replace its own."""
    arguments = {"MODE": query.mode.value, "CONSISTENCY": query.consistency.value}
    if query.window_us is not None:
        arguments["WINDOW"] = f"{query.window_us}us"
    if query.until_us is not None:
        arguments["UNTIL"] = str(query.until_us)
    arguments.update(options or {})
    return packed(
        "MW.QUERY", query.indicator, key, *(word for pair in arguments.items() for word in pair)
    )


LOOK_S = 1.0
"""Between two polls (s): the health of a worker changes within seconds."""
_ANSWER_S = 0.5
"""The timeout of a poll (s). The thread that answers it never waits, so a slower worker is
silent."""


@dataclass(frozen=True, slots=True)
class HealthWatch:
    """For one asyncio loop. ``addresses`` returns those at which workers answer now."""

    workers: Workers
    addresses: Callable[[], frozenset[str]]

    async def run(self) -> None:
        """Poll all workers periodically, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Poll all workers once."""
        addresses = self.addresses()
        for gone in self.workers.poor.keys() - addresses:
            del self.workers.poor[gone]
        await asyncio.gather(*(self._look(address) for address in addresses))

    async def _look(self, address: str) -> None:
        try:
            (reply,) = await asyncio.wait_for(
                self.workers.links.call(address, [packed("INFO")]), _ANSWER_S
            )
        except (LinkClosed, asyncio.TimeoutError):
            self.workers.suspect(address)
            return
        if degree_in(reply) < POOR:
            self.workers.poor[address] = monotonic() + 3 * LOOK_S  # the finding expires
        else:
            self.workers.poor.pop(address, None)
