"""What becomes of a batch that its target does not take: it is tried again, halved, or, as a single
row, refused."""

from __future__ import annotations

from enum import Enum

from millwheel.connect.connectors.external.meanings import MOST_TRIES, RowToBlameError, UnknownError

MOST_WITHOUT_SUCCESS = 3
"""Single rows that fail in a row with unknown errors: after these it is the target that is to
blame, not the rows."""


class Next(Enum):
    """What to do with the batch."""

    AGAIN = "again"
    HALVE = "halve"
    REFUSE = "refuse"
    STOP = "stop"


class Tries:
    """The failures of one shard's batches. For one thread at a time."""

    def __init__(self) -> None:
        self._count = 0
        self._known_bad = 0
        """So many of the next batches are parts of one that failed in all its tries: they are not
        tried as often."""
        self._strange_rows = 0

    def worked(self, rows: int = 1) -> None:
        """The target has taken a batch of so many rows."""
        self._count = 0
        self._known_bad = max(0, self._known_bad - 1)
        if rows:
            self._strange_rows = 0

    def answered(self) -> None:
        """The target has answered, although no batch was written."""
        self._count = 0

    def failed(self, error: RowToBlameError | UnknownError, rows: int) -> Next:
        """What to do with a batch of so many rows after this error; 0 rows: nothing was sent but a
        question."""
        strange = isinstance(error, UnknownError)
        self._count += 1
        if strange and self._count < (2 if rows and self._known_bad else MOST_TRIES):
            return Next.AGAIN
        self._count = 0
        if rows > 1:
            self._known_bad = max(0, self._known_bad - 1) + 2
            return Next.HALVE
        if not rows:
            return Next.STOP
        self._strange_rows = self._strange_rows + 1 if strange else 0
        return Next.REFUSE if self._strange_rows < MOST_WITHOUT_SUCCESS else Next.STOP
