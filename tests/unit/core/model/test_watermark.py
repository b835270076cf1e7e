from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.percentiles import READ, share_name
from millwheel.core.model.times import MAX_TIME, MIN_TIME, SECOND
from millwheel.core.model.watermark import Fellows, WatermarkHold, Watermarks, lowest


def test_the_lowest_hold_counts_and_the_first_of_equals_names_the_holder() -> None:
    holds = [
        WatermarkHold(7, "input"),
        WatermarkHold(5, "timer of k"),
        WatermarkHold(5, "production 3"),
    ]
    assert lowest(holds) == WatermarkHold(5, "timer of k")


def test_nothing_that_holds_is_the_end_of_time() -> None:
    assert lowest([]).watermark_us == MAX_TIME


def test_a_published_watermark_that_falls_is_not_believed() -> None:
    known = Watermarks()
    assert known.rise({"a": 5, "b": 1}) == {"a": 5, "b": 1}
    assert known.rise({"a": 4, "b": 2}) == {"b": 2}
    assert known.lowest_of(["a"]) == 5


def test_a_silent_feeder_keeps_the_input_watermark_at_the_beginning_of_time() -> None:
    known = Watermarks()
    known.rise({"a": 5})
    assert known.lowest_of(["a", "b"]) == MIN_TIME
    assert known.lowest_of([]) == MAX_TIME


def test_sources_are_read_once_all_of_them_have_said_so_or_have_ended() -> None:
    watermarks = Watermarks()
    watermarks.rise({"a": MAX_TIME, "b": 5})
    assert watermarks.are_read(["a"])
    assert not watermarks.are_read(["a", "b"])
    assert not watermarks.are_read(["silent"])
    watermarks.rise({share_name("b", READ): MAX_TIME})
    assert watermarks.are_read(["a", "b"])


def test_a_silent_stream_stands_where_its_furthest_fellow_does() -> None:
    fellows = Fellows()
    assert fellows.reached_us(0) == MIN_TIME
    fellows.advance(MIN_TIME, True, 0)
    assert fellows.reached_us(60 * SECOND) == MIN_TIME, "nobody has a time yet"
    fellows.advance(100 * SECOND, False, 60 * SECOND)
    fellows.advance(90 * SECOND, False, 61 * SECOND)
    assert fellows.reached_us(90 * SECOND) == 100 * SECOND


def test_once_all_fellows_have_ended_the_wall_clock_goes_on_from_the_last_of_them() -> None:
    fellows = Fellows()
    fellows.advance(100 * SECOND, False, 0)
    fellows.advance(100 * SECOND, True, 10 * SECOND)
    assert fellows.reached_us(10 * SECOND) == 100 * SECOND
    assert fellows.reached_us(15 * SECOND) == 105 * SECOND


def test_two_silent_streams_that_follow_each_other_go_no_faster_than_the_clock() -> None:
    one, other = Fellows(), Fellows()
    for each in (one, other):
        each.advance(100 * SECOND, False, 0)
        each.advance(100 * SECOND, True, 0)
    for now_us in range(0, 60 * SECOND, 170_000):
        for mine, its in ((one, other), (other, one)):
            furthest = max(mine.reached_us(now_us), its.reached_us(now_us))
            mine.advance(furthest, False, now_us)
            mine.advance(furthest, True, now_us)
        assert one.reached_us(now_us) <= 100 * SECOND + now_us
    assert one.reached_us(60 * SECOND) > 155 * SECOND


def test_streams_that_have_ended_or_have_no_time_yet_are_not_the_furthest() -> None:
    known = Watermarks()
    known.rise({"source.a": MAX_TIME, "source.b": 7 * SECOND, "source.me": 3 * SECOND})
    fellows = Fellows("source.me", frozenset({"source.a", "source.b", "source.c"}))
    assert fellows.update(known, 0)
    assert not fellows.update(known, 0), "nothing new"
    assert fellows.reached_us(60 * SECOND) == 7 * SECOND
    known.rise({"source.b": MAX_TIME})
    assert fellows.update(known, 60 * SECOND)
    assert fellows.reached_us(65 * SECOND) == 12 * SECOND


GRAPHS = st.lists(st.tuples(st.integers(0, 99), st.sets(st.integers(0, 6))), min_size=1, max_size=7)
"""Of each node its oldest work, and which of the nodes before it feed it."""


@given(GRAPHS, st.lists(st.integers(0, 6), max_size=40))
def test_watermarks_that_travel_in_any_order_end_at_the_formula_of_the_paper_and_never_pass_it(
    graph: list[tuple[int, set[int]]], order: list[int]
) -> None:
    """low watermark of A = min(oldest work of A, low watermark of C : C outputs to A)."""
    feeders = [sorted(each for each in fed if each < node) for node, (_, fed) in enumerate(graph)]
    formula: list[int] = []
    for node, (oldest, _) in enumerate(graph):
        formula.append(min([oldest, *(formula[each] for each in feeders[node])]))
    known = Watermarks()
    for node in [*(each % len(graph) for each in order), *range(len(graph))]:
        before = known.lowest_of(str(each) for each in feeders[node])
        holds = [WatermarkHold(graph[node][0], "oldest work"), WatermarkHold(before, "input")]
        known.rise({str(node): lowest(holds).watermark_us})
        assert all(known.lowest_of([str(each)]) <= formula[each] for each in range(len(graph)))
    assert [known.lowest_of([str(node)]) for node in range(len(graph))] == formula
