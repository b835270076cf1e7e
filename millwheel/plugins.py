"""What packages of sources, sinks and lookups derive from and raise: docs/connectors.md,
docs/lookups.md."""

from millwheel.connect.connectors.external.changes import RowChange, changes_of
from millwheel.connect.connectors.external.meanings import RowToBlameError
from millwheel.connect.connectors.external.sink import ExternalSink
from millwheel.connect.connectors.external.target import (
    NOTHING_YET,
    ExternalTarget,
    Owner,
    RowsRefusedError,
)
from millwheel.connect.lookups.base import Lookup, LookupKey, LookupRefusedError, NoAnswer
from millwheel.connect.sinks.base import (
    BatchRefusedError,
    BatchSplitError,
    LostError,
    Refused,
    Sink,
    SinkBatch,
    SinkRecord,
    Writer,
)
from millwheel.connect.sources.base import (
    Chunk,
    FrameChunk,
    LinesChunk,
    Partition,
    Reader,
    Reject,
    Source,
)

__all__ = [
    "NOTHING_YET",
    "BatchRefusedError",
    "BatchSplitError",
    "Chunk",
    "ExternalSink",
    "ExternalTarget",
    "FrameChunk",
    "LinesChunk",
    "Lookup",
    "LookupKey",
    "LookupRefusedError",
    "LostError",
    "NoAnswer",
    "Owner",
    "Partition",
    "Reader",
    "Refused",
    "Reject",
    "RowChange",
    "RowToBlameError",
    "RowsRefusedError",
    "Sink",
    "SinkBatch",
    "SinkRecord",
    "Source",
    "Writer",
    "changes_of",
]
