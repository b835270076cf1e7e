"""Divided keys of a run, from what its workers tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from millwheel.core.grouping.observations import Division, HotKey, InstanceLoads
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.keys import Divided, KeyKind, KeySpec
from millwheel.core.pipeline.skew import planned
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.launch.progress.divided_nodes import (
    DividedStanding,
    divided_lines,
    divided_standings,
)
from tests.computations import changed, computation_spec

WHOLE = computation_spec(
    "c",
    (InputSpec("hits", KeySpec(KeyKind.FIELD, ("k",))),),
    ("o",),
    window=WindowSpec("tumbling", {"size_us": 60}),
    aggregates=(AggregateSpec("n", "count"),),
    scatter=3,
    divided=Divided.TAG,
)
LOADS = (
    InstanceLoads("partial.c", "partial.c-0", {0: 100, 1: 300}, 4.0, 50),
    InstanceLoads("partial.c", "partial.c-1", {2: 200}, 1.0, 20),
    InstanceLoads("c", "c-0", {}, 0.5, 40),
    InstanceLoads("partial.other", "partial.other-0", {0: 9}, 9.0, 9),
)


def division(
    sender: str, hot: Sequence[tuple[str, float, int]], times: tuple[float | None, ...], epoch: int
) -> Division:
    keys = tuple(HotKey(key, share, instances) for key, share, instances in hot)
    return Division("partial.c", sender, "tag", epoch, keys, (0.5, 0.3, 0.2), times, 2)


def standing(
    whole: ComputationSpec,
    divisions: Sequence[Division] = (),
    loads: Sequence[InstanceLoads] = LOADS,
) -> DividedStanding:
    plain = replace(whole, name="plain", outputs=("p",), scatter=1)
    spec = PipelineSpec("p", (StreamSpec("hits", SourceSpec("files")),), (plain, whole), (), "")
    (found,) = divided_standings(build_graph(planned(spec)), divisions, loads)
    return found


def test_records_and_time_of_instances_come_from_the_shards_they_are_in() -> None:
    found = standing(WHOLE)
    assert (found.node, found.grouping, found.senders) == ("c", "tag", 0)
    assert [(each.records, each.busy_s) for each in found.instances] == [
        (100, 1.0),
        (300, 3.0),
        (200, 1.0),
    ]
    assert found.imbalance == pytest.approx((3 - 5 / 3) / (5 / 3))
    assert all(each.share is None and each.time_s is None for each in found.instances)


def test_senders_are_taken_together() -> None:
    one = division("p0", [("'a'", 0.5, 3), ("'b'", 0.1, 2)], (100.0, 200.0, None), 7)
    other = division("p1", [("'b'", 0.3, 3)], (), 4)
    found = standing(WHOLE, [one, other])
    assert (found.epoch, found.senders) == (7, 2)
    assert [(each.key, each.share, each.instances) for each in found.hot] == [
        ("'a'", 0.25, 3),
        ("'b'", 0.2, 3),
    ]
    assert [each.share for each in found.instances] == pytest.approx([0.5, 0.3, 0.2])
    assert [each.time_s for each in found.instances] == [0.0001, 0.0002, None]


def test_copies_are_accumulators_for_each_result_where_windows_fire_once() -> None:
    assert standing(WHOLE).copies == 70 / 40
    assert standing(changed(WHOLE, allowed_lateness_us=1)).copies is None
    assert standing(changed(WHOLE, window=WindowSpec("session", {"gap_us": 60}))).copies is None
    assert standing(WHOLE, loads=()).copies is None


def test_a_line_says_what_matters() -> None:
    hot = division("p0", [("'a'", 0.5, 3)], (100.0, 200.0, 300.0), 7)
    assert list(divided_lines([standing(WHOLE, [hot])])) == [
        "c: tag(3), epoch 7: 600 records, imbalance 0.80, busiest instance 1, 1 hot key, 'a' has"
        " 50%, 1.75 copies of a key"
    ]
    assert list(divided_lines([standing(replace(WHOLE, divided=Divided.ALL), loads=())])) == [
        "c: scatter(3): 0 records"
    ]
