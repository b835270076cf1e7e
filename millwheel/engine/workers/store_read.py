"""The data that is read from the store of a shard where it is opened, beside the loop, so that the
loop need not read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.core.columns.batch import AnyBatch
from millwheel.core.model.names import ChannelName

Pending = Sequence[tuple[int, ChannelName, Sequence[AnyBatch], Sequence[Mapping[str, bytes]]]]
"""(chunk, channel, its batches, their instances) of productions that perhaps did not reach every
consumer."""


@dataclass(frozen=True, slots=True)
class StoreRead:
    """``pending``: the productions in the store; ``numbers``: the numbers in the store of a
    dictionary (a :class:`.StoredNumbers`), None for others."""

    pending: Pending
    numbers: Any = None
