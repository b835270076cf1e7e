"""How the keys of a shard's productions are divided among instances: by current tables.

The instance of a production is stored with it, so no choice is made twice, and tables need not be
committed: a new owner begins without any. That does not affect results, which are made of the
accumulators of all instances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millwheel.core.grouping.base import Grouping, hot_share
from millwheel.core.grouping.catalogue import RULES
from millwheel.core.grouping.epochs import EPOCH_US, Rule, counted_of
from millwheel.core.grouping.tables import Measured, first_table
from millwheel.core.model.keys import Key

_MOST = 100_000
"""The most records between two tables. The first ones come sooner: after as many records as are
needed to find hot keys, then after twice as many, and so on."""


@dataclass(slots=True)
class _Current:
    machine: Grouping
    began_us: int
    longest: int

    def is_over(self, now_us: int) -> bool:
        """Whether it is time for another table."""
        machine = self.machine
        records = sum(machine.counts)
        enough = machine.counted * hot_share(machine.table.instances) > 1 or not machine.counts_keys
        return (
            machine.adapts
            and enough
            and (records > self.longest or (records > 0 and self._is_old(now_us)))
        )

    def _is_old(self, now_us: int) -> bool:
        return now_us - self.began_us >= EPOCH_US


def _beginning(rule: Rule, now_us: int) -> _Current:
    machine = RULES[rule.grouping](first_table(rule.instances))
    return _Current(machine, now_us, round(1 / hot_share(rule.instances)))


class CurrentTables:
    """The tables of the consumers of one stream of one shard, for each node of ``rules``.

    >>> tables = CurrentTables({"minutes": Rule("auto", 2)})
    >>> tables.choose("minutes", ["a"] * 12)
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    >>> tables.turn()
    >>> tables.choose("minutes", ["a", "a", "b"])
    [0, 1, 0]
    """

    def __init__(self, rules: Mapping[str, Rule], now_us: int = 0) -> None:
        self._rules = dict(rules)
        self._nodes = {node: _beginning(rule, now_us) for node, rule in rules.items()}

    @property
    def rules(self) -> Mapping[str, Rule]:
        """The nodes, and how each divides its keys."""
        return self._rules

    def turn(self, measured: Callable[[], Mapping[str, Measured]] = dict, now_us: int = 0) -> None:
        """Make the tables whose time has come. ``measured``: the measurements since the last ones,
        by node."""
        due = {name: node for name, node in self._nodes.items() if node.is_over(now_us)}
        means = measured() if due else {}
        for name, node in due.items():
            machine = node.machine
            machine.begin(
                machine.next_table(means.get(name) or Measured((None,) * machine.table.instances))
            )
            node.began_us, node.longest = now_us, min(2 * node.longest, _MOST)

    def machines(self) -> dict[str, Grouping]:
        """The machine of each node, for inspection."""
        return {name: node.machine for name, node in self._nodes.items()}

    def choose(self, node: str, keys: Sequence[Key]) -> list[int]:
        """The instances of the next records of a node, in order; and count their keys."""
        machine = self._nodes[node].machine
        machine.count(keys[counted_of(len(keys))])
        last = machine.table.first + sum(machine.counts) + len(keys) - 1
        return machine.choose_all(keys, last)
