"""The I/O of taking a savepoint: sends orders, receives answers and range tables. The process that
takes the savepoint steps it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from millwheel.adapters.ports import Coordination
from millwheel.control.savepoints.orders import ANSWERS, ORDERS, SavepointOrder, answers_to, encode
from millwheel.control.savepoints.state import Taking
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import UnavailableError


class Taker:
    """Gives the orders of one savepoint. They last as long as the session, or until
    :meth:`release`."""

    def __init__(self, taking: Taking, coordination: Coordination) -> None:
        self.taking = taking
        self._coordination = coordination
        self._answers: Mapping[str, bytes] = {}
        self._tables: dict[str, RangeTable] = {}
        coordination.watch_tables(self._table_changed)
        coordination.watch_members(ANSWERS, self._answers_changed)

    def step(self, now_us: int) -> bool:
        """Give the next order, if there is one; True once the savepoint is complete.

        Raises UnavailableError if it cannot be taken. Even then the caller must release the orders.
        """
        taking, before = self.taking, self.taking.order
        answers = answers_to(before, dict(self._answers)) if before is not None else []
        order = taking.step(now_us, dict(self._tables), answers)
        if order is not None:
            self._coordination.join(ORDERS, order.name, encode(order))
            if before is not None:
                self._take_back(before)
        return taking.done

    def release(self) -> None:
        """Withdraw the last order; the shards continue."""
        if self.taking.order is not None:
            self._take_back(self.taking.order)

    def _take_back(self, order: SavepointOrder) -> None:
        # an older order does not count, and disappears with the session
        with suppress(UnavailableError):
            self._coordination.leave(ORDERS, order.name)

    def _table_changed(self, table: RangeTable) -> None:
        self._tables[table.computation] = table

    def _answers_changed(self, members: Mapping[str, bytes]) -> None:
        self._answers = dict(members)
