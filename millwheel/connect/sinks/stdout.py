"""Prints a stream as JSON lines on the standard output of the worker, which its launcher keeps as a
log file and may forward to the terminal.

At least once: printed lines cannot be taken back, so after a crash right after printing the same
lines are printed again. Nothing is lost, because the lines themselves are the committable.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, TextIO

import msgspec

from millwheel.adapters.secret_values import unmasking
from millwheel.connect.formats.row_lines import json_lines
from millwheel.connect.options import Flush, Mark, Option, WithKey, WithTimestamp, read_options
from millwheel.connect.sinks.base import Sink, SinkBatch, Writer, flush_us
from millwheel.connect.sinks.error_messages import in_words
from millwheel.connect.sinks.result_rows import Mode, change_rows, rows_of


class StdoutOptions(msgspec.Struct, frozen=True):
    """JSON lines on standard output. They cannot be taken back: after a crash the last ones may be
    printed again."""

    with_key: WithKey = False
    with_timestamp: WithTimestamp = False
    flush: Flush = "100ms"
    at_once: Annotated[
        bool, Option("true", text="`true`: lines are printed before they are committed")
    ] = False
    mode: Annotated[
        str,
        Option(
            "changelog",
            (Mode.APPEND.value, Mode.CHANGELOG.value),
            refused={
                "upsert": "printed lines cannot be replaced; write changelog, or use the sink"
                " 'files'"
            },
            text="[how results that change are printed](pipeline.md#results-that-change)",
        ),
    ] = "append"
    mark: Mark = "change"

    def __post_init__(self) -> None:
        flush_us(self.flush)


def build_stdout(
    options: Mapping[str, Any], out: TextIO | None = None, folder: str = ""
) -> StdoutLines:
    """Raises ValueError, with a sentence, for options that cannot work."""
    return StdoutLines(read_options("the sink 'stdout'", options, StdoutOptions), out)


class StdoutLines(Sink, Writer):
    """Built by :func:`build_stdout`. It is its own writer, because its shards keep no state."""

    cut_records = 1_000

    def __init__(self, options: StdoutOptions, out: TextIO | None) -> None:
        self._options = options
        self._out = out
        self.flush_us = flush_us(options.flush)
        self.shows_at_once = options.at_once
        self.takes_retractions = options.mode == Mode.CHANGELOG

    def discard(self, identity: str) -> str:
        """See :class:`millwheel.connect.sinks.base.Sink`. Printed lines cannot be removed."""
        return ""

    def check(self, identity: str) -> None:
        """Standard output is always there."""

    def open(self, shard: str, token: int) -> StdoutLines:
        return self

    def prepare(self, batch: SinkBatch) -> bytes:
        with_key, with_timestamp = self._options.with_key, self._options.with_timestamp
        if self.takes_retractions:
            return json_lines(
                change_rows(batch.records, with_key, with_timestamp, self._options.mark)
            )
        return json_lines(rows_of(batch.records, with_key, with_timestamp))

    def publish(self, committable: bytes) -> None:
        out = self._out or unmasking(sys.stdout)
        try:
            out.write(committable.decode())
            out.flush()
        except OSError as ex:
            raise in_words(ex, "print results") from ex

    def sweep(self, committables: list[bytes]) -> None:
        """Nothing is left behind."""
