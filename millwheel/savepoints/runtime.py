"""The shell of a savepoint in the making: orders out, answers and range tables in. The process that takes one steps
it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from millwheel.core.model.range_table import RangeTable
from millwheel.errors import UnavailableError
from millwheel.ports import Coordination
from millwheel.savepoints.orders import ANSWERS, ORDERS, SavepointOrder, answers_to, encode
from millwheel.savepoints.state import Taking


class Taker:
    """Gives the orders of one savepoint. They stand for as long as the session does, or until :meth:`release`."""

    def __init__(self, taking: Taking, coordination: Coordination) -> None:
        self.taking = taking
        self._coordination = coordination
        self._answers: Mapping[str, bytes] = {}
        self._tables: dict[str, RangeTable] = {}
        coordination.watch_tables(self._table_changed)
        coordination.watch_members(ANSWERS, self._answers_changed)

    def step(self, now_us: int) -> bool:
        """Go on with what is known; True once the savepoint is whole.

        Raises UnavailableError when it cannot be taken. Then, too, the orders must be released.
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
        """Take the last order back: whatever stood still goes on."""
        if self.taking.order is not None:
            self._take_back(self.taking.order)

    def _take_back(self, order: SavepointOrder) -> None:
        with suppress(UnavailableError):  # an older order counts for nothing, and goes with the session
            self._coordination.leave(ORDERS, order.name)

    def _table_changed(self, table: RangeTable) -> None:
        self._tables[table.computation] = table

    def _answers_changed(self, members: Mapping[str, bytes]) -> None:
        self._answers = dict(members)
