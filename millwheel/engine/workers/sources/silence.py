"""Decides, alone, when a partition counts as silent."""

from __future__ import annotations

from dataclasses import dataclass, field

from millwheel.core.model.times import SECOND, duration_text, idle_progress

_CLOSELY_US = SECOND


@dataclass(slots=True)
class Silence:
    """How long a partition has been silent, as far as looks at it show.

    Time without a look counts as silence only once the next look has found nothing. After a long
    gap between two looks the measurement starts again, because the writer may have slept through
    the gap, too. A partition is idle once looks in close succession have found nothing for
    ``idle_after_us`` (None: never idle).
    """

    idle_after_us: int | None
    record_at_us: int
    looked_at_us: int = field(init=False)
    _listening_since_us: int = field(init=False)

    def __post_init__(self) -> None:
        self.looked_at_us = self._listening_since_us = self.record_at_us

    def records_came(self, now_us: int) -> None:
        """Note that a look has found records."""
        self.record_at_us = self.looked_at_us = self._listening_since_us = now_us

    def nothing(self, now_us: int, closely: bool = False) -> None:
        """Note that the partition was polled, and that nothing has come since its last record.
        ``closely``: it is polled almost continuously."""
        if not closely and now_us - self.looked_at_us > max(
            (self.idle_after_us or 0) // 2, _CLOSELY_US
        ):
            # A machine that slept for an hour has not observed an hour of silence. Without this,
            # all partitions are idle when it wakes, and the records that they still hold are late:
            # see test_after_a_gap_between_looks_who_slept_as_well_has_time_to_speak.
            self._listening_since_us = now_us
        self.looked_at_us = now_us

    @property
    def lasted_us(self) -> int:
        """How long it has been silent, as of the last look."""
        return self.looked_at_us - self.record_at_us

    @property
    def idle(self) -> bool:
        """True when silence has lasted so long that it must not keep a watermark any more."""
        return (
            self.idle_after_us is not None
            and self.looked_at_us - self._listening_since_us > self.idle_after_us
        )

    @property
    def progress_us(self) -> int:
        """How far the silence moves a watermark, in steps; 0 unless :attr:`idle`."""
        return idle_progress(self.lasted_us) if self.idle else 0

    def in_words(self) -> str:
        """The reason of a hold that ``status`` shows."""
        return f"idle for {duration_text(self.progress_us)}"
