"""Deliberate mistakes in dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np

from millwheel.core.formats.store_layout import NUMBERS
from millwheel.core.model.times import MIN_TIME
from millwheel.engine.workers.dictionaries.dictionary import DictionaryOperator
from millwheel.engine.workers.dictionaries.numbers import Counters, Numbers
from millwheel.engine.workers.dictionaries.store_form import NumbersRead
from millwheel.engine.workers.dictionaries.table import NumberTable
from millwheel.engine.workers.recovery import inheriting
from tests.fakes.plain_storage import SimStore
from tests.sim import mistakes_of_both
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=10, faults="kill kill-again slow-disk sync power", workload="ids", first=3)
def a_counter_goes_back_after_a_crash() -> Context:
    """How far a partition has counted is not what the runs say: the next owner counts from the
    beginning."""
    right = Counters.__init__

    def wrong(self: Counters, counted: Any, stored: Any) -> None:
        right(self, np.zeros_like(counted), stored)

    return replaced(Counters, "__init__", wrong)


@mistake(within=20, faults="kill kill-again slow-disk sync power", workload="ids")
def what_is_read_beside_the_loop_lacks_a_run() -> Context:
    """The store of a dictionary is read before its last commits are there."""
    right = NumbersRead.read

    def wrong(self: NumbersRead, node: str, store: Any) -> Any:
        return right(self, node, SimStore(dict(list(store.scan(NUMBERS))[:-1])))

    return replaced(NumbersRead, "read", wrong)


@mistake(within=20, faults="kill kill-again slow-disk sync power", workload="ids", first=3)
def a_value_gets_a_second_number() -> Context:
    """Whoever has a new value remembers it, and the store has all but the first of a bundle: after
    a crash that is new again."""
    right = Numbers.write

    def wrong(self: Numbers) -> None:
        self._written += self._written < len(self._table)
        right(self)

    return replaced(Numbers, "write", wrong)


@mistake(within=20, workload="ids")
def numbers_leave_before_their_commit_has_them() -> Context:
    """The first new values of a bundle are written with the next one."""
    right = DictionaryOperator.run

    def wrong(self: DictionaryOperator, bundle: Any) -> None:
        right(self, bundle)
        for store_key in [key for key in bundle.overlay._changes if key[:1] == NUMBERS][:1]:
            del bundle.overlay._changes[store_key]

    return replaced(DictionaryOperator, "run", wrong)


@mistake(within=20, workload="ids", first=7)
def heirs_get_no_numbers() -> Context:
    """A shard that comes of a split or merge does not know the values of its parents."""
    return replaced(inheriting, "numbers_within", lambda entries, share: iter(()))


@mistake(within=10, workload="forgotten")
def a_forgotten_number_is_given_again() -> Context:
    """A partition of which a value was forgotten counts from the beginning."""

    def wrong(self: Counters, partitions: Any) -> None:
        self._next[partitions] = 0

    return replaced(Counters, "store", wrong)


@mistake(within=5, workload="forgotten")
def values_live_until_their_bucket_is_removed() -> Context:
    """A value is found as long as it is in the table: it depends on bundles when it is removed."""
    return mistakes_of_both.values_last_while_they_are_stored()


@mistake(within=10, workload="forgotten")
def a_forgotten_value_lives_on() -> Context:
    """A value that was forgotten stays in its row, and counts as one that has just been seen."""
    right = NumberTable.forget_before

    def wrong(self: NumberTable, limit: int) -> Any:
        old = (self.seen < limit) & (self.seen != MIN_TIME)
        gone = right(self, limit)
        self.seen[old] = 2**61
        return gone

    return replaced(NumberTable, "forget_before", wrong)


@mistake(within=10, workload="forgotten")
def only_new_values_are_written() -> Context:
    """That a value was seen again is known in memory only: the next owner forgets it too early."""
    right = Numbers.write

    def wrong(self: Numbers) -> None:
        self._changed = [rows[rows >= self._written] for rows in self._changed]
        right(self)
        self._written = len(self._table)

    return replaced(Numbers, "write", wrong)
