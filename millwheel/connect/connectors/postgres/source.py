"""A table or query of PostgreSQL as a bounded source: the rows whose keys lie between the lowest
and the highest one when the root is new. The position of a row is its key, so inserted and deleted
rows do not change the positions of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from millwheel.connect.connectors.postgres.pages import Pages, PostgresSourceOptions
from millwheel.connect.connectors.postgres.reader import PostgresReader, RowDecoder
from millwheel.connect.options import read_options
from millwheel.connect.sources.base import Partition, Reader, Source

_MOST_WIDTH = 2**62  # keys of a partition: its positions are counted from 1


def build_postgres_source(
    options: Mapping[str, Any],
    schema: type | None = None,
    fields: Mapping[str, str] | None = None,
    folder: str = "",
) -> PostgresRowSource:
    """Raises ValueError for invalid options."""
    source_options = read_options("the source 'postgres'", options, PostgresSourceOptions)
    return PostgresRowSource(source_options, RowDecoder(schema, fields or {}))


class PostgresRowSource(Source):
    """Built by :func:`build_postgres_source`. Connects when it is asked for partitions."""

    bounded = True
    poll_us = 5_000

    def __init__(self, options: PostgresSourceOptions, decoder: RowDecoder) -> None:
        self._options = options
        self._decoder = decoder

    def check(self) -> None:
        """Raises SetupError when the rows cannot be read."""
        self.partitions()

    def partitions(self) -> Sequence[Partition]:
        """With their first and last keys as ``version``, which the root keeps."""
        pages = Pages(self._options)
        try:
            span = pages.span()
        finally:
            pages.close()
        name = self._options.table or "query"
        low, high = span or (0, -1)
        bounds = shares(low, high, self._options.partitions)
        return [Partition(f"{name}/{number}", bound) for number, bound in enumerate(bounds)]

    def open(self, partition: Partition) -> Reader:
        low, high = partition.version or (0, -1)
        return PostgresReader(partial(Pages, self._options), self._decoder, low, high)


def shares(low: int, high: int, count: int) -> list[tuple[int, int]]:
    """The keys from ``low`` to ``high`` in parts of equal width, at least one part, and so many
    that each position in a part fits into 64 bits."""
    width = high - low + 1
    count = max(1, min(max(count, -(-width // _MOST_WIDTH)), width))
    edges = [low + width * number // count for number in range(count + 1)]
    return [(first, following - 1) for first, following in pairwise(edges)]
