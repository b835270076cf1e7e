from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.control.injector.wire import read_frame
from millwheel.errors import InvariantError


def packed(form: str, *values: int) -> bytes:
    return np.array(values, form).tobytes()


def spelled_out(**other: Any) -> pb.Reports:
    """The report of one shard, with some of its columns replaced."""
    right = {
        "shards": ["a"],
        "numbers": [0],
        "tokens": [1],
        "watermarks_us": [1],
        "holders": ["input"],
    }
    return pb.Reports(node="n", **{**right, **other})


def read(reports: pb.Reports) -> None:
    list(read_frame(1, pb.ReportFrame(nodes=[reports])))


def test_a_number_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="4000000000"):
        read(spelled_out(numbers=[4_000_000_000]))


def test_half_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        read(pb.Reports(node="n", changed_numbers=b"abc", changed_watermarks_us=packed("<i8", 1)))


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(InvariantError, match="differ in length"):
        read(
            pb.Reports(
                node="n",
                changed_numbers=packed("<u4", 1),
                changed_watermarks_us=packed("<i8", 1, 2),
            )
        )
    with pytest.raises(InvariantError, match="differ in length"):
        read(spelled_out(tokens=[]))
    with pytest.raises(InvariantError, match="as many numbers"):
        read(spelled_out(numbers=[]))


def test_totals_of_a_report_that_is_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="totals of report 1 among 1"):
        read(spelled_out(totals=[pb.Totals(place=1)]))
