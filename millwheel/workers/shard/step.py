"""The result of a step of a shard, before it becomes a commit."""

from __future__ import annotations

from dataclasses import dataclass

from millwheel.workers.bundle.bundle import Bundle, Hold
from millwheel.workers.delivery.inbox import Arrival
from millwheel.workers.delivery.outbox import OutputChunk

_VERDICT = "a step with too many failures, which waits for a verdict"


@dataclass(frozen=True, slots=True)
class Step:
    """A bundle that has run. ``hold`` kept the watermark before it, ``work_us`` is what was to be done then, and
    ``chunk`` holds what it produced. ``asks``: it has not run yet, because it waits for answers from outside."""

    bundle: Bundle
    arrivals: list[Arrival]
    hold: Hold
    work_us: int
    chunk: OutputChunk | None
    asks: bool = False

    def kept(self) -> Hold:
        """The hold on the watermark while the step is not committed: none of its productions was sent yet."""
        made = [*self.bundle.chunks, *((self.chunk,) if self.chunk is not None else ())]
        at = min([self.hold.at, *(chunk.min_timestamp for chunk in made)])
        waits = "records that wait for answers of a lookup" if self.asks else _VERDICT
        return Hold(at, waits)
