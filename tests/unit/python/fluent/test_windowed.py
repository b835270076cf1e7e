from __future__ import annotations

from millwheel import AfterCount, AfterWatermark, Tumbling, agg
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
