"""What a shard answers from: its state as of the last commit that it has made, durable or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millwheel.core.model.times import MIN_TIME
from millwheel.queries.model import Finding, Query

if TYPE_CHECKING:
    from millwheel.workers.shard.shard import Shard


@dataclass(frozen=True, slots=True)
class ShardView:
    """The state of a shard between two steps. ``number`` is that of the commit which it shows; ``watermark_us`` that of
    its input as of then."""

    shard: Shard
    number: int
    watermark_us: int
    held: bool
    """Whether a step has run and waits for a verdict. It may never be committed, so answers come from before it: from
    the store, since what operators keep in memory may be of the step already."""

    @staticmethod
    def of(shard: Shard) -> ShardView:
        """The view of a shard as it is."""
        step = shard.commits.waiting
        held = step is not None and not step.asks
        committed = shard.meta.watermark
        watermark_us = committed if held else max(shard.watermark.input, committed)
        return ShardView(shard, shard.commits.made, max(watermark_us, MIN_TIME), held)

    def answer(self, query: Query) -> Finding:
        """The operator's answer. Raises QueryError, and whatever the operator raises."""
        operator = self.shard.operator
        ask = operator.answer_committed if self.held else operator.answer
        return ask(query, self.shard.store, self.watermark_us)
