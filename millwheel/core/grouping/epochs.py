"""How the keys of one partition are divided, by position: epochs, each with tables that are
committed before their use.

A new owner reads again from a committed position, and consumers recognize applied records by their
position. So a record must reach the instance that it reached before. An epoch has the tables for
the records between two positions. Nothing beyond the last epoch has ever been sent, so the next one
may be decided by any counts and measurements up to then, also by an owner that has none; and an
epoch is never decided again, but for one case: records that its owner has decided about and not
read have not been sent by anyone. The owner may end its own epoch before them when time has passed,
since the shortened epoch is committed with the next one.

Within an epoch a grouping also goes by how many records each instance has got so far. These counts
belong to a position, and are committed with it. Every record with a usable key is counted, late or
not, so that reads may be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millwheel.core.grouping.base import Grouping, hot_share
from millwheel.core.grouping.catalogue import BY_NUMBER, RULES
from millwheel.core.grouping.tables import EpochTable, Measured, first_table, fitting
from millwheel.core.model.keys import Key
from millwheel.errors import InvariantError

_READS = 8
"""The reads of an epoch, so that most reads wait for no commit. The first epoch of an owner is one
read long, since nothing has been counted before it, and each one after it twice as long as the one
before."""
EPOCH_US = 500_000
"""The time after which an epoch ends with the read before, so that a machine which has become slow
loses load within a few seconds, however long reads take. A table costs a commit of a few
kilobytes."""
MOST_COUNTED = 2_000
"""The most records of a read that are counted, evenly spread: enough to find a key that has 1/(5n)
of them."""


class Rule(NamedTuple):
    """How a node divides its keys: the name of a grouping, and over how many instances."""

    grouping: str
    instances: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """The tables of each node for the records with positions above ``first`` and up to ``last``."""

    first: int
    last: int
    tables: Mapping[str, EpochTable]


def counted_of(records: int) -> slice:
    """The records that are counted, of so many."""
    return slice(0, None, 1 + records // MOST_COUNTED)


@dataclass(slots=True)
class _Node:
    """A node's machine. ``epoch``: the first position of its present epoch, None before any.
    ``settled``: the same, and its counts, at the end of the last read that was kept."""

    machine: Grouping
    instances: int
    epoch: int | None = None
    settled: tuple[int | None, tuple[int, ...]] = (None, ())


class KeyEpochs:
    """The epochs of one partition, for each node of ``rules``.

    >>> epochs = KeyEpochs({"minutes": Rule("auto", 2)})
    >>> epochs.extended(10)[0].tables
    {'minutes': EpochTable(epoch=0, first=1, prices=(1.0, 1.0), routes={}, buckets=())}
    >>> epochs.count("minutes", ["a"] * 12)
    >>> epochs.moved(10)
    >>> [epoch] = epochs.extended(20)
    >>> epoch.last, epoch.tables["minutes"].routes
    (30, {'a': (0, 1)})
    >>> epochs.moved(20)
    >>> epochs.extended(30), epochs.are_hot("minutes", ["a", "a", "b"], [10, 11, 11])
    ([], [False, True, False])
    """

    def __init__(
        self,
        rules: Mapping[str, Rule],
        epochs: Sequence[Epoch] = (),
        position: int = 0,
        counts: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """``epochs`` are the committed ones, by position; reading goes on at ``position``, with its
        ``counts``."""
        self._rules = dict(rules)
        self._epochs = list(epochs)
        self._position = position
        self._longest = 1
        self._reads = 1
        self._own: Epoch | None = None
        self._began_us = 0
        self._nodes = {
            node: _Node(RULES[rule.grouping](first_table(rule.instances)), rule.instances)
            for node, rule in self._rules.items()
        }
        for name, node in self._nodes.items():
            epoch = self._at(position)
            if epoch is not None:
                own_counts = tuple((counts or {}).get(name, ()))
                node.settled = epoch.first, own_counts if len(own_counts) == node.instances else ()
            self._return_to(name, node)

    @property
    def rules(self) -> Mapping[str, Rule]:
        """The nodes, and how each divides its keys."""
        return self._rules

    @property
    def is_empty(self) -> bool:
        """Whether no epoch has been decided yet, so that nothing has been counted."""
        return not self._epochs

    def extended(
        self, position: int, measured: Callable[[], Mapping[str, Measured]] = dict, now_us: int = 0
    ) -> list[Epoch]:
        """The epochs to commit before records are sent: none while the last one goes on, the next
        one, or the shortened last one and the next. Call with the end of each read before its
        records are routed; choices since :meth:`moved` are forgotten. ``measured``: the
        measurements since the last one, by node."""
        self._longest = max(self._longest, position - self._position)
        last = self._epochs[-1].last if self._epochs else 0
        decided: list[Epoch] = []
        if position > last:
            decided = [self._decided(last, position, measured)]
        elif self._is_over(now_us):
            decided = [self._shortened(), self._decided(self._position, position, measured)]
        if decided:
            self._own, self._began_us = decided[-1], now_us
        for name, node in self._nodes.items():
            self._return_to(name, node)
        return decided

    def moved(self, position: int) -> None:
        """Keep the read: the next one begins behind it."""
        self._position = position
        epoch = self._at(position)
        for name, node in self._nodes.items():
            if epoch is not None and node.epoch != epoch.first:
                self._enter(name, node, epoch)
            node.settled = node.epoch, tuple(node.machine.counts)

    def counts(self) -> dict[str, list[int]]:
        """The counts at the end of the last read that was kept: commit them with its position."""
        return {
            name: list(node.settled[1])
            for name, node in self._nodes.items()
            if node.machine.name not in BY_NUMBER
        }

    def machines(self) -> dict[str, Grouping]:
        """The machine of each node, to be looked at."""
        return {name: node.machine for name, node in self._nodes.items()}

    # --- routing ----------------------------------------------------------------------------------

    def count(self, node: str, keys: Sequence[Key]) -> None:
        """Count keys of a read, for the next table."""
        self._nodes[node].machine.count(keys)

    def choose(
        self, node: str, keys: Sequence[Key], positions: Sequence[int] | npt.NDArray[np.int64]
    ) -> list[int]:
        """Choose the instances of the records of a read, in order, once; and count their keys.
        Raises InvariantError for a position that no epoch has."""
        state, instances = self._nodes[node], list[int]()
        self.count(node, keys[counted_of(len(keys))])
        for epoch, rows in self._stretches(node, np.asarray(positions, np.int64)):
            if state.epoch != epoch.first:
                self._enter(node, state, epoch)
            instances += state.machine.choose_all(keys[rows], int(positions[rows.stop - 1]))
        return instances

    def are_hot(self, node: str, keys: Sequence[Key], positions: Sequence[int]) -> list[bool]:
        """Whether the key of each record has a route at its position. Positions rise. Raises
        InvariantError for one that no epoch has."""
        flags: list[bool] = []
        for hot, rows in self.stretches(node, np.asarray(positions, np.int64)):
            flags += (
                [key in hot for key in keys[rows]] if hot else [False] * (rows.stop - rows.start)
            )
        return flags

    def stretches(
        self, node: str, positions: npt.NDArray[np.int64]
    ) -> Iterator[tuple[frozenset[Key], slice]]:
        """(keys with routes, the rows of one epoch) of records whose positions rise, for all of
        them in order."""
        for epoch, rows in self._stretches(node, positions):
            yield frozenset(self._table(node, epoch).routes), rows

    def forget(self, position: int) -> list[Epoch]:
        """Forget and return the epochs that are of no more use once all up to ``position`` has been
        applied. The last one stays: it limits how far records can have been sent."""
        ended = [epoch for epoch in self._epochs[:-1] if epoch.last <= position]
        self._epochs = self._epochs[len(ended) :]
        return ended

    def _stretches(
        self, node: str, positions: npt.NDArray[np.int64]
    ) -> Iterator[tuple[Epoch, slice]]:
        row = 0
        for epoch in self._epochs:
            end = int(np.searchsorted(positions, epoch.last, side="right"))
            if end > row:
                if positions[row] <= epoch.first:
                    break
                yield epoch, slice(row, end)
                row = end
        if row < len(positions):
            raise InvariantError(
                f"position {positions[row]} lies in no epoch of the divided keys of {node}"
            )

    # --- tables -----------------------------------------------------------------------------------

    def _at(self, position: int) -> Epoch | None:
        """The epoch that the record before a position is in."""
        return next((each for each in self._epochs if each.first < position <= each.last), None)

    def _table(self, name: str, epoch: Epoch) -> EpochTable:
        """The table of a node in an epoch. A node that was not in an earlier pipeline of the root,
        or with other instances, begins anew."""
        return fitting(epoch.tables.get(name), self._rules[name].instances)

    def _enter(self, name: str, node: _Node, epoch: Epoch) -> None:
        node.machine.resume(self._table(name, epoch))
        node.epoch = epoch.first

    def _return_to(self, name: str, node: _Node) -> None:
        """Return to the end of the last read that was kept."""
        first, counts = node.settled
        epoch = next((each for each in self._epochs if each.first == first), None)
        node.machine.resume(
            first_table(node.instances) if epoch is None else self._table(name, epoch),
            () if epoch is None else counts,
        )
        node.epoch = None if epoch is None else first

    def _decided(
        self, first: int, position: int, measured: Callable[[], Mapping[str, Measured]]
    ) -> Epoch:
        means = measured() if any(map(self._has_counted, self._nodes.values())) else {}
        tables = {name: self._next_table(name, first, means.get(name)) for name in self._nodes}
        epoch = Epoch(first, position + (self._reads - 1) * self._longest, tables)
        self._reads = min(2 * self._reads, _READS)
        # They follow each other without a gap: a position in none of them has no instance.
        if self._epochs and self._epochs[-1].last != epoch.first:
            raise InvariantError(f"an epoch from {epoch.first} follows {self._epochs[-1].last}")
        self._epochs.append(epoch)
        return epoch

    def _is_over(self, now_us: int) -> bool:
        """Whether time ends the last epoch. Only one of this owner's own, behind records that it
        has sent itself: how far an earlier owner has come is unknown. See mistake
        epochs_of_earlier_owners_are_shortened."""
        return (
            now_us - self._began_us >= EPOCH_US
            and any(node.machine.adapts for node in self._nodes.values())
            and self._own is not None
            and self._own.first < self._position
            and all(map(self._has_counted, self._nodes.values()))
        )

    def _shortened(self) -> Epoch:
        self._epochs[-1] = replace(self._epochs[-1], last=self._position)
        return self._epochs[-1]

    def _has_counted(self, node: _Node) -> bool:
        """Whether enough is counted for a table: with too few records, any key looks hot."""
        return not node.machine.counts_keys or node.machine.counted * hot_share(node.instances) > 1

    def _next_table(self, name: str, first: int, measured: Measured | None) -> EpochTable:
        """The next table: the one before as long as too little is counted."""
        node = self._nodes[name]
        machine = node.machine
        before = (
            self._table(name, self._epochs[-1]) if self._epochs else first_table(node.instances)
        )
        if not self._has_counted(node):
            return replace(before, first=first + 1)
        machine.resume(before)
        table = machine.next_table(measured or Measured((None,) * node.instances))
        machine.begin_window()
        return replace(table, first=first + 1)
