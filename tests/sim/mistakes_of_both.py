"""Deliberate mistakes that both the simulator and the search must notice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

import numpy as np

from millwheel.core.machines.triggers import TriggeredMachine
from millwheel.core.model.times import MIN_TIME
from millwheel.core.model.watermark import ReadFirst
from millwheel.core.windows.windows import SessionPieces
from millwheel.engine.workers.delivery.instances import StoredInstances
from millwheel.engine.workers.dictionaries.numbers import Numbers
from tests.sim.replacing import replaced


def values_last_while_they_are_stored() -> AbstractContextManager[None]:
    """A value is found as long as it is in the table: it depends on bundles when it is removed."""
    right = Numbers._born_again

    def wrong(
        self: Numbers, rows: Any, heads: Any, partitions: Any, seen: Any, at: Any, step_us: int
    ) -> Any:
        last = np.where(seen == MIN_TIME, at, np.minimum(at, seen))
        return right(self, rows, heads, partitions, seen, last, step_us)

    return replaced(Numbers, "_born_again", wrong)


def instances_are_chosen_anew() -> AbstractContextManager[None]:
    """A new owner chooses instances for productions that it finds, and they come to others than
    before."""
    turn = count()

    def wrong(
        self: StoredInstances, node: str, instances: int, keys: Sequence[Any], seqs: Any
    ) -> list[int]:
        return [next(turn) % instances for _ in keys]

    return replaced(StoredInstances, "of", wrong)


def session_pieces_hold_their_ends() -> AbstractContextManager[None]:
    """A piece of a session holds the watermark at its end, and not at its first record: the session
    of the whole key may have ended by then."""
    right = TriggeredMachine._output_at

    def wrong(self: TriggeredMachine, known: Any, timestamps: Any, watermark: int) -> Any:
        is_piece = isinstance(self.windowing.window, SessionPieces)
        return None if is_piece else right(self, known, timestamps, watermark)

    return replaced(TriggeredMachine, "_output_at", wrong)


def tables_count_as_read() -> AbstractContextManager[None]:
    """Records are read, and pass, without a wait for the tables that they are enriched with."""

    def nothing_is_left(self: ReadFirst) -> None:
        self.left = ()

    return replaced(ReadFirst, "__post_init__", nothing_is_left)
