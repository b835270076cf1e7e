"""The policy on failing calls, and the names of failures. Pure.

A *policy* limits the share of the calls of a node that may fail. Shares are judged per *call*: its
kind ("record", "timer", "window", "line", "key of STREAM") and its node. Each shard keeps a tally
of its recent calls; the watermark service adds the tallies of a node up (see
:mod:`millwheel.engine.workers.shard.verdicts`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

RECENT = 10_000
"""A tally halves its counts when it holds so many calls, because only recent calls are to be
judged."""
MOST_WORDS = 8_000
"""Characters of an exception that are kept."""
_KIND_LENGTH = 120  # characters of a kind of failure that are kept
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class OnError:
    """More than ``stop_above`` (a share) of at least ``of_at_least`` recent calls failed: the run
    stops. Any other failure makes a dead letter."""

    stop_above: float = 0.1
    of_at_least: int = 100


SHARE = OnError()
"""The default."""
DEAD_LETTER = OnError(1.0, 1)
"""Every failure becomes a dead letter; the run is never stopped."""
STOP = OnError(0.0, 1)
"""The first failure stops the run."""

UNIT = "timestamp's unit"
"""The kind of call that reads a timestamp which is a number of no stated unit."""
ENDLESS = "timer without end"
"""The kind of call that sets timers again and again although the input has ended."""
_UNIT_POLICY = OnError(0.99, 100)
"""Where all of a stream's first hundred timestamps are in another unit than µs, the pipeline is
wrong, not the data."""


class FailureVerdict(Enum):
    """The judgement of a tally under a policy."""

    FINE = "fine"
    EARLY = "early"  # too few calls to judge by
    BROKEN = "broken"


@dataclass(slots=True)
class Tally:
    """The number of calls, and of failed calls."""

    tried: int = 0
    failed: int = 0

    def verdict(self, policy: OnError) -> FailureVerdict:
        """The verdict of a policy."""
        if policy.stop_above >= 1 or not self.failed:
            return FailureVerdict.FINE
        if self.tried < policy.of_at_least:
            return FailureVerdict.EARLY
        return (
            FailureVerdict.BROKEN
            if self.failed > policy.stop_above * self.tried
            else FailureVerdict.FINE
        )

    def at_least(self, other: Tally) -> Tally:
        """The larger of both figures, as either tally may lack calls that the other one has."""
        return Tally(max(self.tried, other.tried), max(self.failed, other.failed))


@dataclass(frozen=True, slots=True)
class CallKind:
    """One kind of call: ``what`` of the node ``judged``, whose policy applies."""

    judged: str
    what: str


def policy_for(call: CallKind, declared: OnError) -> OnError:
    """The policy for a kind of call of a node with a ``declared`` one. A forgotten unit ends a run
    under any policy: dead letters for ever are right for wrong data only. So do endless timers: it
    would be chance which of their rows come before the dead letter."""
    if call.what == ENDLESS:
        return STOP
    return _UNIT_POLICY if call.what == UNIT else declared


def share_text(share: float) -> str:
    """A share as it is written: ``10%``, ``0.5%``."""
    return f"{share * 100:.6g}%"


# --- kinds of failures ----------------------------------------------------------------------------


def kind_of(error: str, location: str, reason: str) -> str:
    """The name under which a failure is counted: exception and line of code, or the reason without
    its numbers."""
    text = f"{error} at {location}" if error and location else _NUMBERS.sub("#", reason)
    return printable(text if len(text) <= _KIND_LENGTH else text[: _KIND_LENGTH - 1] + "…")


def shown(value: Any, most: int) -> str:
    """A value as text of at most so many characters, even where its class cannot make one."""
    try:
        text = repr(value)
    except Exception as ex:  # of the class's own __repr__, or it nests too deeply
        text = f"<{type(value).__name__} that cannot be shown: {type(ex).__name__}>"
    return encodable(text if len(text) <= most else text[: most - 1] + "…")


def encodable(text: str) -> str:
    """The text, with question marks for parts that are not Unicode, such as half an emoji."""
    return text.encode("utf-8", "replace").decode()


def in_words(ex: BaseException) -> str:
    """``ValueError: no such city``: text that every encoder takes, even where the exception cannot
    make one."""
    try:
        text = str(ex)
    except BaseException as other:  # of the user's own __str__
        text = f"(its text cannot be made: {type(other).__name__})"
    return encodable(f"{type(ex).__name__}: {text[:MOST_WORDS]}")


def printable(text: str) -> str:
    """Text that every encoder takes."""
    return encodable(" ".join(text.split()))


KINDS = "dead_letters."
"""The beginning of the durable counters of dead letters by kind."""
MOST_COUNTED = 2**62
"""The limit of a shard's counters, upwards and downwards: a commit carries numbers of up to 64
bits."""
KINDS_KEPT = 20  # kinds that a shard counts apart; all others are one
OTHER_KINDS = KINDS + "other reasons"


def counted(name: str, counters: Mapping[str, int]) -> str:
    """The counter of a shard to use for ``name``: it has few for the kinds of dead letters."""
    own = _chained(name)[1]
    if not own.startswith(KINDS) or name in counters:
        return name
    begin = name.removesuffix(own) + KINDS
    few = sum(each.startswith(begin) for each in counters) < KINDS_KEPT
    return name if few else name.removesuffix(own) + OTHER_KINDS


def kinds_in(counters: Mapping[str, int]) -> dict[str, int]:
    """Dead letters by kind, the most frequent first."""
    kinds = {
        name[len(KINDS) :]: count for name, count in counters.items() if name.startswith(KINDS)
    }
    return dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0])))


def without_kinds(counters: Mapping[str, int]) -> dict[str, int]:
    """The counters that are not of one kind of dead letter, or of one replay of them."""
    return {
        name: count for name, count in counters.items() if not name.startswith((KINDS, REPLAYED))
    }


REPLAYED = "replayed."
"""The beginning of the durable counters of dead letters that were tried again."""


def replayed_in(counters: Mapping[str, int]) -> int:
    """The number of dead letters that were tried again."""
    return sum(count for name, count in counters.items() if name.startswith(REPLAYED))


# --- counters of nodes that run in the shards of others -------------------------------------------

_CHAINED = "chained\0"


def chained_counter(node: str, name: str) -> str:
    """The durable counter ``name`` of a node, in the shard of the node that it is chained
    behind."""
    return f"{_CHAINED}{node}\0{name}"


def _chained(name: str) -> tuple[str, str]:
    """The node of a shard's counter ("" for the shard's own node), and the counter's name there."""
    if not name.startswith(_CHAINED):
        return "", name
    node, _, own = name[len(_CHAINED) :].partition("\0")
    return node, own


def by_node(node: str, counters: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """The counters of shards of ``node``, by the node that each belongs to."""
    counters_of: dict[str, dict[str, int]] = {node: {}}
    for name, count in counters.items():
        of, own = _chained(name)
        counters_of.setdefault(of or node, {})[own] = count
    return counters_of


def of_nodes(counters: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The counters of nodes, from those of the shards of each node. The numbers of records that
    chained nodes take and make are for metrics alone."""
    totals: dict[str, dict[str, int]] = {node: {} for node in counters}
    for node, of_shards in counters.items():
        for of, own in by_node(node, of_shards).items():
            sums = totals.setdefault(of, {})
            for name, count in own.items():
                if name not in (CHAINED_IN, CHAINED_OUT):
                    sums[name] = sums.get(name, 0) + count
    return totals


CHAINED_IN, CHAINED_OUT = "chained.in", "chained.out"
"""Counters of the records that a node of a chain takes from the one before it, and of the records
that it makes."""


# --- what a shard reports, among its counters -----------------------------------------------------

_TRIED, _FAILED, _FIRST = "\0tried\0", "\0failed\0", "\0first\0"


@dataclass(frozen=True, slots=True)
class First:
    """The first failure of a kind, in words."""

    judged: str
    kind: str
    sentence: str


def as_counters(
    tried: Mapping[str, int], failed: Mapping[CallKind, int], firsts: Mapping[str, First]
) -> dict[str, int]:
    """Tallies and first failures as counters, which can be summed like others."""
    counters = {_TRIED + what: count for what, count in tried.items()}
    counters.update(
        {f"{_FAILED}{call.judged}\0{call.what}": count for call, count in failed.items()}
    )
    counters.update(
        {f"{_FIRST}{each.judged}\0{each.kind}\0{each.sentence}": 1 for each in firsts.values()}
    )
    return counters


def has_failures(counters: Mapping[str, int]) -> bool:
    """Whether a shard has reported failures."""
    return any(name.startswith(_FAILED) for name in counters)


def plain_counters(counters: Mapping[str, int]) -> dict[str, int]:
    """The counters without tallies and first failures."""
    return {name: count for name, count in counters.items() if not name.startswith("\0")}


def tallies_in(counters: Mapping[str, int]) -> dict[CallKind, Tally]:
    """The tallies among reported counters."""
    tallies: dict[CallKind, Tally] = {}
    for name, count in counters.items():
        if name.startswith(_FAILED):
            judged, what = name[len(_FAILED) :].split("\0", 1)
            tallies[CallKind(judged, what)] = Tally(
                max(counters.get(_TRIED + what, 0), count), count
            )
    return tallies


def firsts_in(counters: Mapping[str, int]) -> list[First]:
    """The first failures among reported counters."""
    return [
        First(*name[len(_FIRST) :].split("\0", 2)) for name in counters if name.startswith(_FIRST)
    ]
