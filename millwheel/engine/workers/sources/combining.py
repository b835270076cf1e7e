"""Whether a source sends groups in place of the records that it has read (see
workers/delivery/combining.py).

Groups are committed together with the position behind the read. So nothing that a partition sends
in this mode is ever read again, and reads may be cut anywhere. Reads that are sent as records are
not committed: consumers drop what they have by its position. Between the two modes lies a commit or
a wait, see :meth:`Combine.begin` and :meth:`.Part.leave_groups`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millwheel.core.columns.batch import AnyBatch
from millwheel.core.model.names import NodeName
from millwheel.engine.workers.delivery.combining import Combining, share


@dataclass(slots=True)
class Combine:
    """Whether a partition is read in this mode. ``on``: by the last commit or the next one.
    ``planned``: it begins once the consumers have applied all that was sent before. The next look
    is ``looks_in`` reads away; after the mode was left, ``pause``. ``alone``: no former owner can
    have sent records that this one has not read yet."""

    on: bool
    planned: bool = False
    looks_in: int = 1
    pause: int = 1
    alone: bool = True

    def groups(
        self,
        combining: Combining | None,
        batches: Sequence[tuple[NodeName, AnyBatch]],
        records: int,
    ) -> list[AnyBatch] | None:
        """The groups that are sent in place of the records of a read; None: the records themselves.
        They are never grouped without ``combining``."""
        if combining is None:
            return None
        if not self.on:
            self.look(combining, batches, records)
            return None
        groups = combining.groups(batches)
        return (
            groups
            if groups is not None and self.goes_on(combining, groups, batches, records)
            else None
        )

    def look(
        self, combining: Combining, batches: Sequence[tuple[NodeName, AnyBatch]], records: int
    ) -> None:
        """Note a read that is sent as records: would groups be far fewer?"""
        # Consumers have the records that a former owner sent under their positions, and would take
        # groups of them for new: see test_groups_begin_behind_all_that_a_former_owner_has_sent.
        if records < combining.limits.least or self.planned or not self.alone:
            return
        self.looks_in -= 1
        if self.looks_in > 0:
            return
        self.looks_in = combining.limits.looks
        groups = combining.groups(batches)
        self.planned = groups is not None and share(groups, batches) <= combining.limits.enters

    def goes_on(
        self,
        combining: Combining,
        groups: Sequence[AnyBatch],
        batches: Sequence[tuple[NodeName, AnyBatch]],
        records: int,
    ) -> bool:
        """Whether it is still worth it."""
        if records >= combining.limits.few and share(groups, batches) <= combining.limits.leaves:
            return True
        self.pause = combining.limits.pause
        return False

    def begin(self) -> None:
        """Send groups from here on: everything that was sent as records is applied."""
        self.on, self.planned = True, False

    def leave(self) -> None:
        """Send records from here on."""
        self.on, self.planned, self.looks_in = False, False, self.pause
