"""When the shards of a worker begin to work. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millwheel.core.model.times import MAX_TIME, SECOND
from millwheel.workers.loop.served import Life, Served

LONGEST_US = SECOND
"""Sources do not wait longer for the other shards of their worker."""


@dataclass(slots=True)
class Beginning:
    """A shard begins when its token is known, but a source first waits for the shards that are still opening here: its
    records could only be buffered for them, and reading would slow their opening. ``until`` is the end of that wait
    (wall clock, µs; MAX_TIME: no shard waits)."""

    until_us: int = MAX_TIME

    def due(self, served: Iterable[Served], opening: bool, now_us: int) -> list[Served]:
        """The shards that begin now. ``opening``: stores are still being opened."""
        every = list(served)
        ready = [one for one in every if one.life is Life.KNOWN]
        others = opening or any(one.life is Life.OPENED and not one.reads for one in every)
        if not others or now_us >= self.until_us:
            self.until_us = MAX_TIME
            return ready
        if self.until_us == MAX_TIME and any(one.reads for one in ready):
            self.until_us = now_us + LONGEST_US
        return [one for one in ready if not one.reads]
