from __future__ import annotations

from millwheel.connect.sinks.base import BatchRefusedError, Refused, SinkRecord


def test_a_refused_batch_tells_what_is_left_of_it_and_why() -> None:
    refused = [Refused(SinkRecord("k", 1, 0), "too odd"), Refused(SinkRecord("k", 3, 0), "odder")]
    error = BatchRefusedError(refused, b"rest")
    assert (str(error), error.refused, error.committable) == (
        "too odd; odder",
        tuple(refused),
        b"rest",
    )
