"""The environment of a test of a sink: a target, the journal that survives crashes, and processes
that own the shard."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from millwheel.connect.plug_ins import as_writer
from millwheel.connect.sinks.base import (
    BatchRefusedError,
    Refused,
    Sink,
    SinkBatch,
    SinkRecord,
    Writer,
)
from millwheel.core.model.lease import Lease
from millwheel.errors import UnavailableError
from millwheel.tools.testing.contracts.outside import Outside

SHARD = "sink.out-0"
IDENTITY = "the-root"
ROWS = 3
"""Records of a batch of the first owner."""
_TRIES = 50  # attempts to publish a batch; after these, the target is broken rather than away


class SinkWorld(ABC):
    """A target, empty at first, and the sinks that write to it."""

    @abstractmethod
    def sink(self, outside: Outside) -> Sink:
        """A sink as a new process creates it, for the target of this world. All its calls to the
        target go through ``outside.call``; see :class:`.WatchedClient`. Its identity is
        :data:`IDENTITY`."""

    @abstractmethod
    def rows(self) -> list[Any]:
        """The values that a reader of the target sees now, in the order of their arrival."""

    def value(self, batch: int, row: int) -> Any:
        """The value of a record of the test. Distinct numbers give distinct values."""
        return {"batch": batch, "row": row}

    def refused(self) -> tuple[Any, str] | None:
        """A value that the target refuses, and a part of its error message. None if it accepts
        every value."""
        return None

    def lost(self) -> Exception:
        """The exception that the client of the target raises when the connection breaks."""
        return UnavailableError("the connection broke")

    def close(self) -> None:
        """Release resources; called at the end of each check."""
        return


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """A dead letter of the sink."""

    value: Any
    reason: str


@dataclass(slots=True)
class ShardLife:
    """The life of a shard whose journal survives its owners: committables and dead letters, each
    committed atomically. ``values`` are the values to write; ``taken`` counts those in each batch.
    Owners divide them into batches differently."""

    world: SinkWorld
    values: list[Any]
    committables: list[bytes] = field(default_factory=list)
    letters: list[RefusedValue] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    token: int = 0

    def writer(self, outside: Outside) -> Writer:
        """The writer of a new owner, with a higher token than all before."""
        self.token += 1
        return as_writer(self.world.sink(outside).open(SHARD, self.token))

    def owned(self, outside: Outside) -> Writer:
        """One owner's life as in the runtime, from its first publication to the last batch."""
        writer = self.writer(outside)
        for number in range(len(self.committables)):
            self.publish(writer, number)
        writer.sweep(list(self.committables))
        while sum(self.taken) < len(self.values):
            self.prepare(writer)
            self.publish(writer, len(self.committables) - 1)
        return writer

    def prepare(self, writer: Writer) -> int:
        """The next batch, prepared and committed; its number."""
        number, since = len(self.committables), sum(self.taken)
        size = ROWS if Lease(self.token).is_first else ROWS - 1
        records = [
            SinkRecord("key", value, 1_000_000 * number)
            for value in self.values[since : since + size]
        ]
        committable = writer.prepare(SinkBatch(number, f"{self.token}-{number}", records))
        refused = writer.take_refused()
        self.committables.append(committable)
        self.taken.append(len(records))
        self.letters += _letters(refused)
        return number

    def expected(self, batches: int | None = None) -> list[Any]:
        """The values that a reader sees after that many batches, or after all prepared ones."""
        refused = [letter.value for letter in self.letters]
        return [value for value in self.values[: sum(self.taken[:batches])] if value not in refused]

    def publish(self, writer: Writer, number: int, refused: Callable[[], object] = bool) -> None:
        """Publish a batch as the runtime does: retry while the target is away, and leave out the
        records that it refuses. Calls ``refused`` after each dead letter is committed."""
        for _ in range(_TRIES):
            try:
                writer.publish(self.committables[number])
            except UnavailableError as ex:
                last = ex
            except BatchRefusedError as ex:
                self.committables[number] = ex.committable
                self.letters += _letters(ex.refused)
                refused()
            else:
                return
        raise AssertionError(f"batch {number} was not published in {_TRIES} tries") from last


def _letters(refused: Sequence[Refused]) -> list[RefusedValue]:
    return [RefusedValue(each.record.value, each.reason) for each in refused]
