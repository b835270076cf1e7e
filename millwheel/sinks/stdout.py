"""Prints a stream as JSON lines on the standard output of the worker, which its launcher keeps as a log file and may
forward to the terminal.

At least once: printed lines cannot be taken back, so after a crash right after printing the same lines are printed
again. Nothing is lost, because the lines themselves are the committable.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO

import msgspec

from millwheel.formats.json_rows import json_lines
from millwheel.options import read_options
from millwheel.secret_values import unmasking
from millwheel.sinks.base import Sink, SinkBatch, Writer, flush_us
from millwheel.sinks.changes import Mode, change_rows, mode_of
from millwheel.sinks.error_messages import in_words
from millwheel.sinks.rows import rows_of

_EXAMPLES = {
    "with_key": "with_key: true",
    "with_timestamp": "with_timestamp: true",
    "flush": "flush: 100ms",
    "at_once": "at_once: true",
    "mode": "mode: changelog",
    "mark": "mark: change",
}


class StdoutOptions(msgspec.Struct, frozen=True):
    """What may stand below ``stdout:``. ``at_once``: lines are printed before they are committed."""

    with_key: bool = False
    with_timestamp: bool = False
    flush: str | int = "100ms"
    at_once: bool = False
    mode: str = "append"
    mark: str = "change"

    def __post_init__(self) -> None:
        flush_us(self.flush)
        if mode_of(self.mode) is Mode.UPSERT:
            raise ValueError(
                "option 'mode': what is printed cannot be replaced; write changelog, or use the sink 'files'"
            )


def build_stdout(options: Mapping[str, Any], out: TextIO | None = None) -> StdoutLines:
    """Raises ValueError, with a sentence, for options that cannot work."""
    return StdoutLines(read_options("the sink 'stdout'", options, StdoutOptions, _EXAMPLES), out)


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
        """See :class:`millwheel.sinks.base.Sink`. What was printed is nobody's any more."""
        return ""

    def check(self, identity: str) -> None:
        """Standard output is always there."""

    def open(self, shard: str, token: int) -> StdoutLines:
        return self

    def prepare(self, batch: SinkBatch) -> bytes:
        with_key, with_timestamp = self._options.with_key, self._options.with_timestamp
        if self.takes_retractions:
            return json_lines(change_rows(batch.records, with_key, with_timestamp, self._options.mark))
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
