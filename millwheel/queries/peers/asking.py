"""What becomes of questions to workers: they follow MOVED and ASK, try again, and go to another worker where one is
silent, until there is a reply or the deadline has passed. For one asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from millwheel.queries.model import CODES, Query, QueryError
from millwheel.queries.peers.link import LinkClosed, Links, packed

_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.1  # before a worker that said TRYAGAIN is asked again: a shard opens in about that
_PATIENCE = 8
"""A worker that has not replied for this part of the deadline is silent, where another one could be asked."""
_PATIENCE_S = 0.25
"""At most: whoever gives much time to a request does not want to wait for a silent worker."""
_SUSPECT_S = 1.0
"""So long a silent worker is asked behind the others: they answer meanwhile, and it costs one question to see it
back."""
_TRIES = 3
"""Who has the key was asked so often and could not answer yet: nobody is near to opening its shard."""
_GONE = "no worker answered in time: "


def no_others() -> Sequence[str]:
    """Nobody else could answer."""
    return ()


@dataclass(slots=True)
class Asking:
    """One question on its way. ``address`` is who is asked next, "" whoever ``others`` names; they may answer from a
    standby, by ``stale``, if the owner is silent. ``why`` is what stood in the way so far."""

    command: bytes
    address: str
    others: Callable[[], Sequence[str]] = no_others
    anybody: Callable[[], Sequence[str]] = no_others
    """Who could answer from a snapshot, if neither of them does."""
    tried: int = 0
    stale: bytes = b""
    elsewhere: bool = False
    """Whoever has the key cannot answer at the moment: others are asked next."""
    late: dict[str, asyncio.Future[list[Any]]] = field(default_factory=dict)
    """Calls to workers that were silent, by their addresses: what takes long there may still be answered there."""
    why: str = "nobody has the key at the moment"
    reply: bytes | QueryError | None = None


@dataclass(slots=True)
class Workers:
    """Asks workers. ``suspects`` were silent and ``poor`` ones are not well: both are asked last until then (monotonic,
    s)."""

    links: Links
    suspects: dict[str, float] = field(default_factory=dict)
    poor: dict[str, float] = field(default_factory=dict)

    async def ask(self, asked: Sequence[Asking], deadline_s: float) -> None:
        """Fill in the replies, JSON or an error, within ``deadline_s``."""
        try:
            await self._ask(asked, deadline_s)
        finally:
            for call in {call for each in asked for call in each.late.values()}:
                call.cancel()

    async def _ask(self, asked: Sequence[Asking], deadline_s: float) -> None:
        end_s, pause_s = monotonic() + deadline_s, _PAUSE_S
        waiting = list(asked)
        while True:
            hasty = await self._round(waiting, end_s, min(deadline_s / _PATIENCE, _PATIENCE_S))
            waiting = [each for each in waiting if each.reply is None]
            if not waiting:
                return
            left_s = end_s - monotonic()
            if left_s <= 0:
                break
            if not hasty:  # some were sent on at once: they need no pause
                await asyncio.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                waiting = [each for each in waiting if each.reply is None]  # a late reply may have come
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
        """Whom to ask, and whether for what a standby knows."""
        address, free = asking.address, asking.address not in asking.late
        if address and free and not asking.elsewhere and not self._is_suspect(address):
            return address, False
        others = [*asking.others()]
        if self._is_suspect(address) or asking.tried >= _TRIES:
            others += asking.anybody()
        others = [each for each in others if each not in (address, *asking.late) and not self._is_suspect(each)]
        if others:
            return others[0], bool(address)
        return (address, False) if address and free else None

    def _is_suspect(self, address: str) -> bool:
        return max(self.suspects.get(address, 0.0), self.poor.get(address, 0.0)) > monotonic()

    def suspect(self, address: str) -> None:
        """A worker is silent: for a while, it is asked last."""
        self.suspects[address] = monotonic() + _SUSPECT_S

    async def _call(self, target: tuple[str, bool], group: Sequence[Asking], end_s: float, patience_s: float) -> bool:
        """One call to one worker; True when something of it is to be asked elsewhere at once."""
        address, stale = target
        if address in self.suspects:
            self.suspect(address)  # this call looks for it: others need not wait, too
        commands = [each.stale if stale and each.stale else each.command for each in group]
        left_s = max(end_s - monotonic(), 0.001)
        alone = all(not each.others() and not each.anybody() for each in group)
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

    def _silent(self, address: str, call: asyncio.Future[list[Any]], group: Sequence[Asking]) -> None:
        """Others are asked from now on. But its questions may be such as take long, there and everywhere: who asked
        again and again would never have an answer, so whatever comes first is taken."""
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
        """Note a reply; True when it sends the question on."""
        if isinstance(reply, bytes):
            asking.reply = reply
            return False
        kind, _, rest = str(reply).partition(" ")
        if kind in ("MOVED", "ASK"):
            address = rest.rpartition(" ")[2]
            moved = address != asking.address  # else it is told what it knows: wait for it
            asking.address, asking.elsewhere, asking.why = address, False, f"the key is with {address}"
            return moved and (address not in self.suspects or bool(asking.others() or asking.anybody()))
        if kind == "TRYAGAIN":
            asking.why = rest
            asking.tried += 1
            others = asking.others() or (asking.tried >= _TRIES and asking.anybody())
            asking.elsewhere = not asking.elsewhere and bool(others)
            return asking.elsewhere
        asking.reply = error_of(str(reply))
        return False


def error_of(line: str) -> QueryError:
    """The error that a line of the protocol tells."""
    kind, _, rest = line.partition(" ")
    code, _, sentence = rest.partition(": ")
    if kind == "ERR" and code in CODES and sentence:
        return QueryError(code, sentence)
    return QueryError("unavailable", rest if kind == "ERR" else line)


def command_of(query: Query, key: str, options: Mapping[str, str] | None = None) -> bytes:
    """MW.QUERY for a question; ``key`` is its key as text, ``options`` replace its own."""
    given = {"MODE": query.mode.value, "CONSISTENCY": query.consistency.value}
    if query.window_us is not None:
        given["WINDOW"] = f"{query.window_us}us"
    if query.until_us is not None:
        given["UNTIL"] = str(query.until_us)
    given.update(options or {})
    return packed("MW.QUERY", query.indicator, key, *(word for pair in given.items() for word in pair))
