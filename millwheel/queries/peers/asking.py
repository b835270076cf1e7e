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
_SUSPECT_S = 1.0
"""So long a silent worker is asked behind the others: they answer meanwhile, and it costs one question to see it
back."""
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
    stale: bytes = b""
    why: str = "nobody has the key at the moment"
    reply: bytes | QueryError | None = None


@dataclass(slots=True)
class Workers:
    """Asks workers. ``suspects`` were silent, and are asked last until then (monotonic, s)."""

    links: Links
    suspects: dict[str, float] = field(default_factory=dict)

    async def ask(self, asked: Sequence[Asking], deadline_s: float) -> None:
        """Fill in the replies, JSON or an error, within ``deadline_s``."""
        end_s, pause_s = monotonic() + deadline_s, _PAUSE_S
        waiting = list(asked)
        while True:
            hasty = await self._round(waiting, end_s, deadline_s / _PATIENCE)
            waiting = [each for each in waiting if each.reply is None]
            if not waiting:
                return
            left_s = end_s - monotonic()
            if left_s <= 0:
                break
            if not hasty:  # some were sent on at once: they need no pause
                await asyncio.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
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
        if asking.address and not self._is_suspect(asking.address):
            return asking.address, False
        others = [each for each in asking.others() if each != asking.address and not self._is_suspect(each)]
        if others:
            return others[0], bool(asking.address)
        return (asking.address, False) if asking.address else None

    def _is_suspect(self, address: str) -> bool:
        return self.suspects.get(address, 0.0) > monotonic()

    async def _call(self, target: tuple[str, bool], group: Sequence[Asking], end_s: float, patience_s: float) -> bool:
        """One call to one worker; True when something of it is to be asked elsewhere at once."""
        address, stale = target
        commands = [each.stale if stale and each.stale else each.command for each in group]
        left_s = max(end_s - monotonic(), 0.001)
        alone = all(not each.others() for each in group)
        try:
            replies = await asyncio.wait_for(
                self.links.call(address, commands), left_s if alone else min(left_s, patience_s)
            )
        except (LinkClosed, asyncio.TimeoutError) as ex:
            self.suspects[address] = monotonic() + _SUSPECT_S
            for each in group:
                each.why = str(ex) or f"{address} is silent"
            return not alone
        self.suspects.pop(address, None)
        taken = [self._take(each, reply) for each, reply in zip(group, replies, strict=True)]
        return any(taken)

    def _take(self, asking: Asking, reply: Any) -> bool:
        """Note a reply; True when it sends the question on."""
        if isinstance(reply, bytes):
            asking.reply = reply
            return False
        kind, _, rest = str(reply).partition(" ")
        if kind in ("MOVED", "ASK"):
            address = rest.rpartition(" ")[2]
            moved = address != asking.address  # else it is told what it knows: wait for it
            asking.address, asking.why = address, f"the key is with {address}"
            return moved and not self._is_suspect(address)
        if kind == "TRYAGAIN":
            asking.why = rest
        else:
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
