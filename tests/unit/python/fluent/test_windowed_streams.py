from __future__ import annotations

from millwheel import AfterCount, AfterWatermark, Tumbling, agg
from millwheel.core.pipeline.work import AggregationSpec
from tests.unit.python.fluent.test_draft import small


def test_a_trigger_leaves_the_windows_that_it_was_asked_of_as_they_were() -> None:
    """Two computations may go on from the same windows."""
    pipeline, hits = small()
    windows = hits.key_by("user").window(Tumbling("1m"))
    windows.trigger(AfterWatermark(early=AfterCount(2)), accumulation="accumulating").aggregate(
        output="early"
    )
    windows.aggregate({"n": agg.count()}, where="x > 1", output="plain")
    early, plain = pipeline.spec().computations
    assert early.firing.trigger is not None
    assert (plain.firing.trigger, plain.condition) == (None, "x > 1")
    assert early.firing.accumulation != plain.firing.accumulation
    assert [each.function for each in plain.aggregates] == ["count"]


def test_an_aggregate_may_be_the_name_of_its_function() -> None:
    pipeline, hits = small()
    hits.key_by("user").window(Tumbling("1m")).aggregate({"n": "count"}, output="out")
    [computation] = pipeline.spec().computations
    assert [(each.name, each.function) for each in computation.aggregates] == [("n", "count")]


def test_keys_are_divided_by_the_same_words_as_in_yaml() -> None:
    pipeline, hits = small()
    hits.key_by("user").window(Tumbling("1m")).aggregate(
        {"n": "count"}, output="out", skew="scatter(4)"
    )
    assert [(each.name, each.scatter) for each in pipeline.spec().computations] == [
        ("partial.out", 4),
        ("out", 4),
    ]


def test_an_aggregation_without_a_window_is_a_change_log() -> None:
    pipeline, hits = small()
    hits.key_by("user").aggregate(
        {"n": "count"}, every="1s", ttl="7d", where="x > 1", then={"m": "n * 2"}, having="m > 3"
    )
    hits.key_by("user").aggregate({"n": agg.count()}, output="plain")
    shown, plain = pipeline.spec().computations
    assert (shown.firing.trigger, shown.condition) == ({"every": "1s"}, "x > 1")
    assert shown.firing.accumulation == "retracting"
    work = shown.work_as(AggregationSpec)
    assert (work.window.options, dict(work.then), work.having) == (
        {"ttl_us": 604_800_000_000},
        {"m": "n * 2"},
        "m > 3",
    )
    assert (plain.name, plain.is_change_log) == ("plain", True)
    assert plain.firing.accumulation == "accumulating"


def test_results_of_windows_are_made_and_left_out() -> None:
    pipeline, hits = small()
    windows = hits.key_by("user").window(Tumbling("1m"))
    windows.aggregate({"n": "count"}, then={"m": "n * 2"}, having="m > 3", output="out")
    [computation] = pipeline.spec().computations
    work = computation.work_as(AggregationSpec)
    assert (dict(work.then), work.having) == ({"m": "n * 2"}, "m > 3")
