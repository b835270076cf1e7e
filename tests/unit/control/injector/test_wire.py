from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.control.injector.wire import figures_of, read_frame
from millwheel.core import metrics as c
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND
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


def test_lag_is_behind_the_clock_and_behind_the_furthest_source() -> None:
    stands = {"source.a": 20, "source.b": 50, "c": 5}
    nodes = [pb.NodeStatus(node=name, watermark_us=at * SECOND) for name, at in stands.items()]
    nodes.append(
        pb.NodeStatus(node="d", watermark_us=MAX_TIME, complete=True, stale_reports=3, silent=2)
    )
    found = {
        (each.metric, *each.values): each.value
        for each in figures_of(pb.StatusReply(nodes=nodes), 60.0)
    }
    assert found[c.NODE_LAG, "c"] == 55.0
    assert found[c.NODE_BEHIND, "c"] == 45.0
    assert found[c.NODE_BEHIND, "source.b"] == 0
    assert (c.NODE_LAG, "d") not in found
    assert (found[c.NODE_DRAINED, "d"], found[c.NODE_DRAINED, "c"]) == (1, 0)
    assert (found[c.REFUSED_REPORTS, "d"], found[c.NODE_SILENT, "d"]) == (3, 2)


def test_without_a_source_at_some_time_nothing_is_behind() -> None:
    nodes = [
        pb.NodeStatus(node="source.a", watermark_us=at) for at in (MIN_TIME, IDLE_TIME, MAX_TIME)
    ]
    nodes.append(pb.NodeStatus(node="c", watermark_us=SECOND))
    assert c.NODE_BEHIND not in {
        each.metric for each in figures_of(pb.StatusReply(nodes=nodes), 60.0)
    }
