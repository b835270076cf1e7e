"""The records of one key in a bundle, on their way into its windows."""

from __future__ import annotations

from typing import Any

import msgspec

from millwheel.core.pipeline.production_ids import Cause
from millwheel.core.windowing.contract import Effects, RejectedRecord
from millwheel.core.windows.panes import Retraction, as_retraction


class KeyRecords:
    """The records of one key that have come; of several inputs, the stream of each; where productions have ids, the
    cause that each is."""

    __slots__ = ("causes", "records", "streams")

    def __init__(self) -> None:
        self.records: list[tuple[Any, int]] = []
        self.streams: list[str] = []
        self.causes: list[Cause] = []

    def name_streams(self, effects: Effects) -> None:
        """Say of refused records by which stream they came."""
        for number, bad in enumerate(effects.rejected):
            effects.rejected[number] = msgspec.structs.replace(bad, stream=self._stream_of(bad))

    def _stream_of(self, bad: RejectedRecord) -> str:
        taken_back = Retraction(bad.value) if type(bad.value) is not Retraction else bad.value
        for (value, at), stream in zip(self.records, self.streams, strict=False):
            if at == bad.timestamp and (value is bad.value or as_retraction(value) == taken_back):
                return stream
        return ""
