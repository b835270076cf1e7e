"""A step of a shard, before it becomes a commit."""

from __future__ import annotations

from dataclasses import dataclass

from millwheel.workers.bundle.bundle import Bundle, Hold
from millwheel.workers.delivery.inbox import Arrival
from millwheel.workers.delivery.outbox import OutputChunk

_VERDICT = "a step with too many failures, which waits for a verdict"


@dataclass(slots=True)
class Step:
    """A bundle with its arrivals. ``hold`` kept the watermark before it, and ``work_us`` is what was to be done then.
    While it ``asks``, it has not run yet: it may wait for ``asks_for``, from outside. ``chunk`` holds what it produced.

    It is not frozen: the shard makes one for each bundle, and setting fields of a frozen one takes three times as
    long."""

    bundle: Bundle
    arrivals: list[Arrival]
    hold: Hold
    work_us: int
    chunk: OutputChunk | None = None
    asks: bool = True
    asks_for: str = ""

    def kept(self) -> Hold:
        """The hold on the watermark while the step is not committed: none of its productions was sent yet."""
        made = [*self.bundle.chunks, *((self.chunk,) if self.chunk is not None else ())]
        at = min([self.hold.at, *(chunk.min_timestamp for chunk in made)])
        waits = f"records that wait for {self.asks_for}" if self.asks else _VERDICT
        return Hold(at, waits)
