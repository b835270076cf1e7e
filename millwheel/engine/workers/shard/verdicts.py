"""Failures of one shard, and whether a step that holds some may be committed.

A node is judged by the share of its recent calls that failed, over all of its shards. So each shard
reports its tally to the watermark service, which adds them up and broadcasts the sums to all
workers. A step whose failures are within the policy is committed at once, with its dead letters.
Another one **waits**: it has read, computed and counted, but is not committed, so its records are
unacked, its timers set and its windows open. If the sums show that the node is fine after all, it
is committed; if not, the run is stopped, and the next owner of the shard tries the same calls
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from millwheel.core.model.failures import (
    ENDLESS,
    RECENT,
    CallKind,
    FailureVerdict,
    First,
    OnError,
    Tally,
    as_counters,
    policy_for,
)
from millwheel.core.model.times import MAX_TIME, SECOND
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.errors import EndlessTimerError

EARLY_US = SECOND
"""How long a step waits for other calls of its node where there are too few to judge by."""
_FIRSTS = 5  # first failures that a shard reports

Policies = Callable[[str], OnError]
"""The decision about the failures of a node."""


class Verdicts:
    """The tallies of one shard since it was opened. Without ``policies`` nothing waits."""

    def __init__(self, policies: Policies | None) -> None:
        self._policies = policies
        self._tried: dict[str, int] = {}
        self._failed: dict[CallKind, int] = {}
        self._firsts: dict[str, First] = {}
        self._sums: Mapping[CallKind, Tally] = {}
        self.version = 0
        """Changes whenever :meth:`counters` changes."""

    def take(self, bundle: Bundle) -> None:
        """Count the calls of a step, and the failed ones."""
        if self._policies is None:
            _check_ends(bundle)
            return
        for what, count in bundle.tried.items():
            if self._tried.get(what, 0) > RECENT:
                self._forget_half(what)
            self._tried[what] = self._tried.get(what, 0) + count
        for call, count in bundle.failures.items():
            self._failed[call] = self._failed.get(call, 0) + count
        for first in bundle.firsts.values():
            if len(self._firsts) < _FIRSTS:
                self._firsts.setdefault(f"{first.judged}\0{first.kind}", first)
        if self._failed or self._sums:
            self.version += 1

    def _forget_half(self, what: str) -> None:
        while self._tried[what] > RECENT // 2:
            self._tried[what] //= 2
            for call in self._failed:
                if call.what == what:
                    self._failed[call] //= 2

    def follow(self, sums: Mapping[CallKind, Tally]) -> None:
        """Take the sums of the tallies of all shards of the node, from the watermark service."""
        if not self._sums:
            self.version += 1  # from now on it counts how many calls of ours did not fail
        self._sums = sums

    def counters(self) -> dict[str, int]:
        """The counts to report besides durable counters; none as long as no call of the node has
        failed."""
        if not self._failed and not self._sums:
            return {}
        failed = {**dict.fromkeys(self._sums, 0), **self._failed}
        return as_counters(self._tried, failed, self._firsts)

    def waits(self, calls: Iterable[CallKind], since_us: int, now_us: int) -> bool:
        """Whether a step with failures of these calls, ready ``since``, must not be committed
        yet."""
        return any(self._waits(call, since_us, now_us) for call in calls)

    def _waits(self, call: CallKind, since_us: int, now_us: int) -> bool:
        if self._policies is None:
            return False
        policy, own = policy_for(call, self._policies(call.judged)), self._own(call)
        if own.verdict(policy) is FailureVerdict.FINE:
            return False
        verdict = own.at_least(self._sums.get(call, own)).verdict(policy)
        return verdict is FailureVerdict.BROKEN or (
            verdict is FailureVerdict.EARLY and now_us < since_us + EARLY_US
        )

    def _own(self, call: CallKind) -> Tally:
        failed = self._failed.get(call, 0)
        return Tally(max(self._tried.get(call.what, 0), failed), failed)


def _check_ends(bundle: Bundle) -> None:
    """Raise an error for endless timers where no run can be stopped."""
    for call in bundle.failures:
        if call.what == ENDLESS:
            raise EndlessTimerError(
                f"{call.judged} failed: {next(iter(bundle.firsts.values())).sentence}"
            )


def looks_at(since_us: int, now_us: int) -> int:
    """When to look at a waiting step again if no sums come (wall clock)."""
    return since_us + EARLY_US if now_us < since_us + EARLY_US else MAX_TIME
