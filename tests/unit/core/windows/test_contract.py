from __future__ import annotations

from millwheel.core.windows.contract import Effects, RejectedRecord, rejected
from millwheel.errors import RecordError


def test_a_rejected_record_says_why_and_which_aggregate_refused_it() -> None:
    error = RecordError("sum needs a number")
    error.aggregate = "bytes"
    assert rejected("k", {"v": 1}, 5, error) == RejectedRecord(
        "k", {"v": 1}, 5, "sum needs a number", "bytes"
    )
    assert rejected("k", 1, 5, RecordError("no day")).aggregate == ""


def test_effects_of_two_calls_are_apart() -> None:
    Effects().panes.append(None)  # type: ignore[arg-type]
    assert Effects().panes == []
