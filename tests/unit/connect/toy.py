"""A connector as CONTRIBUTING.md describes it: a module with its options and its builders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from millwheel.connect.options import Option, read_options
from millwheel.connect.sources.base import Chunk, Partition, Reader, Source


class BellOptions(msgspec.Struct, frozen=True):
    """The strokes of a bell."""

    strokes: Annotated[int, Option("12")]
    tone: Annotated[str, Option("high", ("high", "low"))] = "high"


def build_bell(
    options: Mapping[str, Any],
    folder: str = "",
    schema: type | None = None,
    fields: Mapping[str, str] | None = None,
) -> BellSource:
    return BellSource(read_options("the source 'bell'", options, BellOptions))


class BellSource(Source):
    bounded = True

    def __init__(self, options: BellOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[Partition]:
        return [Partition("tower")]

    def open(self, partition: Partition) -> Reader:
        return BellReader(self.options)


class BellReader(Reader):
    def __init__(self, options: BellOptions) -> None:
        self._options = options

    def read(self, position: int, max_records: int) -> Chunk:
        last = min(position + max_records, self._options.strokes)
        values = [{"n": n, "tone": self._options.tone} for n in range(position, last)]
        positions = [value["n"] + 1 for value in values]
        return Chunk(positions, values, last, finished=last == self._options.strokes)
