"""Branches as a Computation, so that they share the bundles, retries and dead letters of callbacks."""

from __future__ import annotations

from millwheel.api import Computation, Context
from millwheel.core.model.records import Record
from millwheel.core.pipeline.branches import Choose

UNMATCHED = "unmatched"
"""The counter of records that no branch takes."""


class Branched(Computation):
    """Sends each record to the streams of its branches, as it is. Stateless."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def process_record(self, ctx: Context, record: Record) -> None:
        """One record goes to one stream, to several, or is counted."""
        streams = self._choose(record.value)
        for stream in streams:
            ctx.produce(stream, record.value)
        if not streams:
            ctx.count(UNMATCHED)
