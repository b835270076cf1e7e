"""Failures of a run: reported at once, and the end of the run if there are too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from millwheel.core.model.failures import (
    ENDLESS,
    UNIT,
    CallKind,
    FailureVerdict,
    First,
    OnError,
    Tally,
    policy_for,
    share_text,
)
from millwheel.core.pipeline.graph import ClusterView, Graph
from millwheel.errors import BrokenError

_PATIENCE_S = 1.0
"""The share must be too large for this long: healthy shards may not have reported yet."""
_MOST_ANNOUNCED = 20  # first failures that a run announces, for each node
_NOUNS = {
    "record": "records",
    "timer": "timers",
    "window": "windows",
    "line": "lines",
    UNIT: "timestamps",
}


class Failures:
    """Reports failures of a run. ``announce`` is called with the first failure of each kind. The
    run can be continued on ``root``."""

    def __init__(self, graph: Graph, root: str, announce: Callable[[str], None]) -> None:
        self._graph = graph
        self._root = root
        self._announce = announce
        self._announced: Counter[str] = Counter()
        self._firsts: dict[tuple[str, str], First] = {}
        self._since: dict[CallKind, float] = {}

    def look(self, view: ClusterView | None, now_s: float, at_the_end: bool = False) -> None:
        """Report new failures. Raises BrokenError, with a sentence, when a node fails too often."""
        if view is None:
            return
        for first in [first for node in view.nodes.values() for first in node.firsts]:
            self._announce_first(first)
        broken = dict(self._broken(view))
        self._since = {call: self._since.get(call, now_s) for call in broken}
        # it has the better sentence
        for call, tally in sorted(broken.items(), key=lambda item: item[0].what != UNIT):
            patient = self._policy(call).stop_above > 0 and not at_the_end
            if not patient or now_s >= self._since[call] + _PATIENCE_S:
                raise BrokenError(self._sentence(call, tally), call.judged)

    def _announce_first(self, first: First) -> None:
        if (first.judged, first.kind) in self._firsts or self._announced[
            first.judged
        ] >= _MOST_ANNOUNCED:
            return
        self._announced[first.judged] += 1
        self._firsts[first.judged, first.kind] = first
        self._announce(f"{first.judged} failed: {first.sentence}")

    def _broken(self, view: ClusterView) -> Iterator[tuple[CallKind, Tally]]:
        for node in view.nodes.values():
            for call, tally in node.tallies.items():
                if tally.verdict(self._policy(call)) is FailureVerdict.BROKEN:
                    yield call, tally

    def _policy(self, call: CallKind) -> OnError:
        return policy_for(call, self._graph.on_error(call.judged))

    def _sentence(self, call: CallKind, tally: Tally) -> str:
        policy = self._policy(call)
        noun = _NOUNS.get(call.what, f"records that need a {call.what}")
        limit = (
            f"more than {share_text(policy.stop_above)} of at least {policy.of_at_least:,}"
            if policy.stop_above
            else "one is enough"
        )
        first = next(
            (each for (node, _), each in self._firsts.items() if node == call.judged), None
        )
        why = f" First: {first.sentence}" if first is not None else ""
        if call.what == UNIT:
            return (
                f"{call.judged}: {tally.failed:,} of its last {tally.tried:,} timestamps are"
                f" numbers of no stated unit, and hardly µs, so the run was stopped.{why}\nNothing"
                f" is lost. Write the unit and start again on the same root, {self._root}."
            )
        if call.what == ENDLESS:
            return (
                f"{call.judged} sets timers without end, so the run was stopped.{why}\nCorrect the"
                " code and start again with --fresh (in Python: fresh=True): the root,"
                f" {self._root}, has results from after the end of the input."
            )
        return (
            f"{call.judged} failed on {tally.failed:,} of its last {tally.tried:,} {noun}, so the"
            f" run was stopped (on_error: {limit}).{why}\nNothing is lost. Correct the code or the"
            f" data and start again on the same root, {self._root}: the failed calls are tried"
            " again. A change that the root does not allow is refused; --fresh (in Python:"
            f" fresh=True) then begins anew. Or write on_error: dead_letter for {call.judged}, to"
            " continue with dead letters whatever fails."
        )
