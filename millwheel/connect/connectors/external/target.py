"""The contract of a target: another system, as the owner of one shard of a sink uses it.

A target notes, beside the rows and in the same transaction, the number of their batch and the lease
token of their writer. So the next owner can read which batches are in the target, and former owners
are fenced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millwheel.connect.sinks.base import SinkRecord
from millwheel.core.model.lease import Lease
from millwheel.errors import FencedError, MillwheelError

NOTHING_YET = -1
"""The number of the last batch if there is none."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The publisher: ``name`` is the globally unique name of the shard; a later owner has a higher
    ``token``."""

    name: str
    token: int

    def admits(self, token: int) -> None:
        """Raises FencedError if the target's token is newer than ours."""
        if Lease(self.token).is_behind(token):
            raise FencedError(
                f"{self.name} has a newer publisher: its lease token is {token}, ours {self.token}"
            )


class RowsRefusedError(MillwheelError):
    """The target has written nothing of a batch because it refuses some of its rows: a map from the
    row's number in the batch to the error of the target."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = dict(reasons)


class ExternalTarget(ABC):
    """Only one thread uses a target at a time. The target connects when it is first used, and again
    after an UnavailableError.

    A target without transactions returns :data:`NOTHING_YET` from :meth:`fence`, and writes by key,
    so that writing a batch again changes nothing; or it documents that it is at-least-once."""

    @abstractmethod
    def fence(self) -> int:
        """Note our token, so that no former owner can write any more. Return the number of the last
        batch in the target, :data:`NOTHING_YET` for none. A batch that a former owner had begun is
        either counted in that number or can no longer be written.

        Raises FencedError when the target has a newer token than ours, UnavailableError when the
        caller should try again, SetupError when a person must mend something, and any error that
        its client raises: the writer tries again a few times then (``meanings.py``)."""

    @abstractmethod
    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        """In one transaction of the target: check that the noted token is still ours, write the
        records in order, and note ``number``.

        Raises UnavailableError when the outcome of the transaction is unknown: then :meth:`fence`
        is called before the next attempt. Raises :class:`RowsRefusedError` when the target refuses
        some rows: then nothing of the batch may have been written. Raises FencedError when a newer
        owner has noted its token."""

    def close(self) -> None:
        """Release connections. Never called while another method runs."""
        return
