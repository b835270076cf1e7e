"""Steps as a Computation, so that they share the bundles, retries and dead letters of callbacks."""

from __future__ import annotations

from millwheel.api import Computation, Context
from millwheel.core.model.records import Record
from millwheel.core.pipeline.steps import Apply


class Stepped(Computation):
    """Sends the results of the steps to each output, with the record's key and timestamp. Stateless."""

    def __init__(self, apply: Apply, outputs: tuple[str, ...]) -> None:
        self._apply = apply
        self._outputs = outputs

    def process_record(self, ctx: Context, record: Record) -> None:
        """The records that one record becomes: none, one or several."""
        for value in self._apply(record.value):
            for stream in self._outputs:
                ctx.produce(stream, value)
