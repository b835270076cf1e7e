"""Deliberate mistakes in dictionaries."""

from __future__ import annotations

from typing import Any

from millwheel.workers.dictionaries.dictionary import DictionaryOperator, Numbers
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=10, faults="kill kill-again slow-disk sync power", workload="ids")
def a_counter_goes_back_after_a_crash() -> Context:
    """How far a partition has counted is not part of the commit: the next owner counts from the beginning."""

    def wrong(self: Numbers) -> None:
        self._changed.clear()

    return replaced(Numbers, "write", wrong)


@mistake(within=20, faults="kill kill-again slow-disk sync power", workload="ids")
def a_value_gets_a_second_number() -> Context:
    """Whoever has a new value remembers it, and the store does not: after a crash it is new again."""
    right = Numbers._give

    def wrong(self: Numbers, at: int, store_key: bytes) -> int:
        number = right(self, at, store_key)
        self._overlay.delete(store_key)
        return number

    return replaced(Numbers, "_give", wrong)


@mistake(within=20, workload="ids")
def numbers_leave_before_their_commit_has_them() -> Context:
    """The first new value of a bundle is written with the next one."""
    right = DictionaryOperator.run

    def wrong(self: DictionaryOperator, bundle: Any) -> None:
        right(self, bundle)
        for store_key in list(bundle.overlay._changes)[:1]:
            del bundle.overlay._changes[store_key]

    return replaced(DictionaryOperator, "run", wrong)
