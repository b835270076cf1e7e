"""How far the streams are that meet a source further down."""

from __future__ import annotations

from dataclasses import dataclass

from millwheel.core.model.times import MIN_TIME, idle_progress
from millwheel.core.model.watermark import Watermarks


@dataclass(slots=True)
class Fellows:
    """The watermark of the furthest stream that meets this one further down. A silent stream holds none of them back:
    its watermark is at least theirs, as among the partitions of one stream. Otherwise a stream that never has a record,
    or whose last one is a month old, would hold unions, joins and enrichments for ever.

    ``names`` are the others, as nodes; ``began_us`` is when this one was first looked at. Once none of them has a time
    any more, because all have ended, the wall clock goes on from the last one."""

    node: str = ""
    names: frozenset[str] = frozenset()
    began_us: int = 0
    _at_us: int = MIN_TIME
    _alone_since_us: int | None = None

    def hear(self, watermarks: Watermarks, now_us: int) -> None:
        """Some watermarks may have risen."""
        if self.names:
            others = watermarks.furthest_of(self.names)
            mine = watermarks.furthest_of((self.node,))
            self.told(max(others, mine), others == MIN_TIME, now_us)

    def told(self, at_us: int, alone: bool, now_us: int) -> None:
        """The furthest published watermark, this stream's own included, is ``at_us``. ``alone``: no other one has a
        time."""
        # Not below what was reached: else two silent streams that follow each other would both start anew, for ever.
        if at_us > self.reached_us(now_us):
            self._at_us, self._alone_since_us = at_us, None
        if alone and self._alone_since_us is None and self._at_us > MIN_TIME:
            self._alone_since_us = now_us

    def reached_us(self, now_us: int) -> int:
        """How far a stream that is silent as a whole lets event time pass."""
        if self._alone_since_us is None:
            return self._at_us
        return self._at_us + idle_progress(max(now_us - self._alone_since_us, 0))
