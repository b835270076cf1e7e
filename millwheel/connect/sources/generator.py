"""Generates synthetic records at a chosen rate, for load tests and tutorials.

A record is a function of (seed, partition, index), and its event time of (start, rate, index), so
that a partition read again from a position gives the same records. The position of a record is its
index plus one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import xxhash

from millwheel.connect.options import Option, read_options
from millwheel.connect.sources.base import Chunk, Partition, Reader, Reject, Source
from millwheel.core.aggregates.plain_data import copied, is_plain
from millwheel.core.instants.texts import text_us
from millwheel.core.model.failures import in_words
from millwheel.core.model.times import SECOND
from millwheel.errors import RecordError, SetupError

Factory = Callable[[int, int], Any]
_BLOCK = 4096  # Fixed: records that share a random generator; changing it changes the records
_MAX_BURST_US = SECOND


class GeneratorOptions(msgspec.Struct, frozen=True):
    """Synthetic records, for load tests and tutorials. Their event times advance by 1/``rate``, at
    rate 0 as for 1,000,000/s."""

    rate: Annotated[
        float,
        Option(
            "5000",
            text="records per second, all partitions together; `0`: as fast as they are consumed",
        ),
    ] = 1000.0
    count: Annotated[
        int | None,
        Option(
            "1000000", text="end after this many records, all partitions together", default="never"
        ),
    ] = None
    keys: Annotated[int, Option("1000", text="number of different keys")] = 1000
    partitions: Annotated[int, Option("4", text="number of partitions")] = 1
    factory: Annotated[
        str,
        Option(
            "module:function",
            python="Callable[[int, int], Any] | str",
            text="`module:function` that makes a value from (index, partition number)",
            default="the values above",
        ),
    ] = ""
    seed: Annotated[int, Option("7", text="another seed gives other records")] = 0
    start: Annotated[
        str,
        Option(
            '"2025-01-01T00:00:00Z"',
            python="str | datetime",
            text="event time of the first record, ISO 8601",
        ),
    ] = "2025-01-01T00:00:00Z"

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1e9:
            raise ValueError(
                f"option 'rate' is {self.rate}; write records per second, or 0 for as fast as"
                " possible"
            )
        if self.count is not None and self.count < 0:
            raise ValueError(
                f"option 'count' is {self.count}; write how many records to make, or leave it out"
            )
        for name, value, most in (
            ("keys", self.keys, 2**40),
            ("partitions", self.partitions, 10_000),
        ):
            if not 1 <= value <= most:
                raise ValueError(f"option {name!r} is {value}; write a number from 1 to {most}")
        if self.factory and not all(self.factory.partition(":")):
            raise ValueError(f"option 'factory' is {self.factory!r}; write module:function")
        self.start_us()

    def start_us(self) -> int:
        """``start`` in µs. Raises ValueError when it is not an ISO 8601 time."""
        try:
            return text_us(self.start)
        except RecordError:
            raise ValueError(
                f"option 'start' is {self.start!r}; write an ISO 8601 time such as"
                " 2025-01-01T00:00:00Z"
            ) from None


def build_generator(
    options: Mapping[str, Any],
    folder: str,
    schema: type | None = None,
    clock: Callable[[], int] | None = None,
    fields: Mapping[str, str] | None = None,
) -> GeneratedRecords:
    """Raises ValueError for invalid options. ``clock`` returns a monotonic time in µs."""
    read = read_options("generator", options, GeneratorOptions)
    return GeneratedRecords(read, folder, schema, clock or (lambda: time.monotonic_ns() // 1000))


class GeneratedRecords(Source):
    """Built by :func:`build_generator`."""

    poll_us = 1_000

    def __init__(
        self, options: GeneratorOptions, folder: str, schema: type | None, clock: Callable[[], int]
    ) -> None:
        self._options = options
        self._folder = folder
        self._schema = schema
        self._clock = clock
        self.bounded = options.count is not None

    def partitions(self) -> Sequence[Partition]:
        return [Partition(str(number)) for number in range(self._options.partitions)]

    def ends(self) -> Sequence[Partition]:
        raise SetupError(
            "a generator without a count makes records for ever, so no run catches up with it;"
            " write count: NUMBER, or run without --until-caught-up"
        )

    def open(self, partition: Partition) -> GeneratorReader:
        number = int(partition.name)
        return GeneratorReader(self._options, number, self._make(number), self._clock)

    def _make(self, number: int) -> Callable[[int, int], list[Any]]:
        """(first index, count) -> values."""
        schema = self._schema
        if not self._options.factory:
            make = DefaultRecords(self._options, number).make
        else:
            from millwheel.connect.python_objects import load_object

            factory: Factory = load_object(self._options.factory, self._folder)

            def make(first: int, count: int) -> list[Any]:
                return [_own(factory(index, number)) for index in range(first, first + count)]

        if schema is None:
            return make
        return lambda first, count: [msgspec.convert(value, schema) for value in make(first, count)]


def _own(value: Any) -> Any:
    """The value of the user's factory, in the form in which other workers get it: plain data, which
    no other record shares."""
    try:
        return (
            copied(value)
            if is_plain(value)
            else msgspec.msgpack.decode(msgspec.msgpack.encode(value))
        )
    except (TypeError, ValueError, OverflowError, RecursionError):
        return value  # refused later, as all values that cannot be sent


class DefaultRecords:
    """Values {"id", "key", "value", "ts"}: a unique text, one of ``keys`` numbers, a float in [0,
    1), µs."""

    def __init__(self, options: GeneratorOptions, partition: int) -> None:
        self._options = options
        self._partition = partition
        self._period_us = (
            SECOND * options.partitions / options.rate
            if options.rate
            else float(options.partitions)
        )
        self._start_us = options.start_us()
        self._block = -1
        self._numbers: list[int] = []
        self._floats: list[float] = []

    def make(self, first: int, count: int) -> list[Any]:
        """Values from index ``first`` on."""
        return [self._value(index) for index in range(first, first + count)]

    def _value(self, index: int) -> dict[str, Any]:
        block, offset = divmod(index, _BLOCK)
        if block != self._block:
            self._draw(block)
        return {
            "id": f"{self._partition}-{index}",
            "key": self._numbers[offset],
            "value": self._floats[offset],
            "ts": self._start_us + int(index * self._period_us),
        }

    def _draw(self, block: int) -> None:
        seed = xxhash.xxh3_64_intdigest(f"{self._options.seed}/{self._partition}/{block}".encode())
        random = np.random.Generator(np.random.Philox(seed))
        self._numbers = random.integers(0, self._options.keys, _BLOCK).tolist()
        self._floats = random.random(_BLOCK).tolist()
        self._block = block


class GeneratorReader(Reader):
    """Generates the records that are due. A reader that resumes continues at the rate, without a
    burst."""

    def __init__(
        self,
        options: GeneratorOptions,
        number: int,
        make: Callable[[int, int], list[Any]],
        clock: Callable[[], int],
    ) -> None:
        self._make = make
        self._clock = clock
        self._per_us = options.rate / options.partitions / SECOND
        self._count = (
            None if options.count is None else _share(options.count, number, options.partitions)
        )
        self._began_us = -1
        self._began_at = 0

    def read(self, position: int, max_records: int) -> Chunk:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        due = self._due(position)
        end = min(position + max_records, due)
        if self._count is not None:
            end = min(end, self._count)
        end = max(end, position)
        chunk = self._chunk(position, end)
        chunk.finished = self._count is not None and end >= self._count
        chunk.caught_up = end >= due
        return chunk

    def _chunk(self, position: int, end: int) -> Chunk:
        try:
            values = self._make(position, end - position)
        except KeyboardInterrupt:
            raise
        except BaseException:  # any exception of the user's factory concerns one of these records
            return self._one_by_one(position, end)
        return Chunk(list(range(position + 1, end + 1)), values, end)

    def _one_by_one(self, position: int, end: int) -> Chunk:
        chunk = Chunk([], [], end)
        for index in range(position, end):
            try:
                chunk.values += self._make(index, 1)
                chunk.positions.append(index + 1)
            except KeyboardInterrupt:
                raise
            except BaseException as ex:
                chunk.rejects.append(Reject(index + 1, f"index {index}", _reason(ex)))
        return chunk

    def _due(self, position: int) -> int:
        """The number of records that this partition should have generated by now; the backlog is at
        most one second's worth."""
        if not self._per_us:
            return sys.maxsize
        now = self._clock()
        if self._began_us < 0:
            self._began_us, self._began_at = now, position
        due = self._began_at + int((now - self._began_us) * self._per_us)
        owed_us = (due - position) / self._per_us
        if owed_us > _MAX_BURST_US:
            self._began_us += int(owed_us - _MAX_BURST_US)
        return due


def _reason(ex: BaseException) -> str:
    if isinstance(ex, msgspec.ValidationError):
        return f"the record does not fit the stream's schema: {ex}"
    return f"the generator's factory failed: {in_words(ex)}"


def _share(count: int, number: int, partitions: int) -> int:
    """The share of ``count`` records that the partition ``number`` generates."""
    return count // partitions + (number < count % partitions)
