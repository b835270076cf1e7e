"""Answers from slices in a plain store: which accumulators are read, and what is said of the
span."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.store_layout import EXPIRED, number8, slice_prefix
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.work import AggregateSpec, SlicesSpec
from millwheel.core.slices.levels import slice_levels
from millwheel.core.slices.slots import slot_stored_key
from millwheel.engine.queries.model import CODES, Consistency, Mode, Query, QueryError
from millwheel.engine.queries.slices import (
    SliceAnswers,
    SliceSpan,
    StoredSlice,
    encode_slice,
    pieces,
    span_of,
)

S = 1_000_000
SPEC = SlicesSpec((10 * S, 60 * S), 3_600 * S)
ANSWERS = SliceAnswers.of(
    SPEC, compile_aggregation([AggregateSpec("n", "count")], compile_expression)
)


class Plain:
    """A view over a dict; counts what is read."""

    def __init__(self, *slices: tuple[int, int, int, int]) -> None:
        self.data = {
            slice_prefix(level, start * S) + slot_stored_key("k"): encode_slice(
                StoredSlice(newest * S, [n])
            )
            for level, start, newest, n in slices
        }
        self.reads: list[int] = []

    def get(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads.append(len(keys))
        return [self.data.get(key) for key in keys]

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        raise AssertionError("an answer scans nothing")


def ask(
    view: Plain, window: int, until: int, watermark: int = 0, mode: Mode = Mode.COVERING
) -> tuple[object, ...]:
    found = ANSWERS.answer(Query("c", "k", window * S, until * S, mode), view, watermark * S)
    assert found.covered_start_us is not None
    assert found.covered_end_us is not None
    return found.values["n"], found.covered_start_us // S, found.covered_end_us // S, found.complete


def test_the_slice_that_runs_counts_as_far_as_it_was_asked_when_nothing_lies_behind() -> None:
    view = Plain((0, 60, 63, 2), (1, 60, 63, 2), (1, 0, 5, 3), (0, 0, 5, 3))
    assert ask(view, 65, 65) == (5, 0, 65, False)
    assert view.reads == [2]


def test_a_slice_with_records_behind_the_end_is_covered_whole_and_said_so() -> None:
    assert ask(Plain((0, 60, 67, 2), (1, 60, 67, 2)), 5, 65) == (2, 60, 70, False)


def test_a_longer_slice_that_reaches_beyond_the_span_is_read_again_in_shorter_ones() -> None:
    view = Plain((0, 60, 63, 2), (0, 90, 95, 7), (1, 60, 95, 9))
    assert ask(view, 5, 65) == (2, 60, 65, False)
    assert ask(view, 60, 120) == (9, 60, 120, False)


def test_an_answer_is_complete_once_the_watermark_has_passed_its_span() -> None:
    view = Plain((0, 60, 63, 2), (1, 60, 63, 2))
    assert ask(view, 10, 70, 69) == (2, 60, 70, False)
    assert ask(view, 10, 70, 70) == (2, 60, 70, True)


def test_what_has_expired_is_refused_and_never_answered_with_less() -> None:
    view = Plain((0, 60, 63, 2), (1, 60, 63, 2))
    assert ask(view, 10, 70, 3_669)[0] == 2
    with pytest.raises(QueryError) as caught:
        ask(view, 10, 70, 3_670)
    assert caught.value.code == "beyond_keep"


def test_at_the_end_of_input_what_was_kept_until_then_is_still_answered() -> None:
    view = Plain((0, 60, 63, 2), (1, 60, 63, 2))
    at_end = Query("c", "k", 10 * S, 70 * S)
    assert ANSWERS.answer(at_end, view, MAX_TIME).values == {"n": 2}
    view.data[EXPIRED] = number8(70 * S)
    with pytest.raises(QueryError):
        ANSWERS.answer(at_end, view, MAX_TIME)


def test_a_window_longer_than_what_is_kept_is_refused() -> None:
    with pytest.raises(QueryError) as caught:
        ask(Plain(), 3_601, 4_000)
    assert caught.value.code == "beyond_keep"


def test_one_value_can_be_asked_for_and_an_unknown_one_is_named_with_those_there_are() -> None:
    view = Plain((0, 60, 63, 2), (1, 60, 63, 2))
    assert ANSWERS.answer(Query("c.n", "k", 10 * S, 70 * S), view, 0).values == {"n": 2}
    with pytest.raises(QueryError, match="c has no 'm'; it has n"):
        ANSWERS.answer(Query("c.m", "k", 10 * S, 70 * S), view, 0)


M, H, D = 60_000_000, 3_600_000_000, 86_400_000_000
LEVELS = slice_levels((5 * M, H, D))
NOW = 1_700_000_000_000_000  # 22:13:20 UTC


@given(st.integers(1, 40 * D), st.integers(0, 2 * NOW))
def test_a_covering_span_is_longer_than_the_window_by_less_than_a_slice_at_each_end(
    window: int, until: int
) -> None:
    span = span_of(LEVELS, window, until, Mode.COVERING)
    assert 0 <= until - window - span.start_us < 5 * M
    assert 0 <= span.end_us - until < 5 * M


@given(st.integers(1, 40 * D), st.integers(0, 2 * NOW))
def test_an_inner_span_is_shorter_by_less_than_a_slice_at_each_end_or_empty(
    window: int, until: int
) -> None:
    span = span_of(LEVELS, window, until, Mode.INSIDE)
    assert until - window <= span.start_us
    assert 0 <= span.start_us - (until - window) < 5 * M
    assert span.start_us == span.end_us or 0 <= until - span.end_us < 5 * M


@given(st.integers(1, 40 * D), st.integers(0, 2 * NOW), st.booleans())
def test_pieces_follow_each_other_from_the_start_of_the_span_to_its_end(
    window: int, until: int, beyond: bool
) -> None:
    span = span_of(LEVELS, window, until, Mode.COVERING)
    found = list(pieces(LEVELS, span, beyond))
    assert [piece.start_us for piece in found] == [
        span.start_us,
        *(piece.end_us for piece in found[:-1]),
    ]
    assert found[-1].start_us < span.end_us <= found[-1].end_us
    assert beyond or found[-1].end_us == span.end_us


@given(st.integers(0, 2 * NOW))
def test_thirty_days_until_now_touch_at_most_65_accumulators_and_not_8641(until: int) -> None:
    span = span_of(LEVELS, 30 * D, until, Mode.COVERING)
    assert len(list(pieces(LEVELS, span, beyond=True))) <= 65
    assert (span.end_us - span.start_us) // (5 * M) in (8_640, 8_641)


def test_an_exact_window_on_edges_is_itself_and_any_other_is_refused_with_the_nearest() -> None:
    until = NOW - NOW % (5 * M)
    assert span_of(LEVELS, H, until, Mode.EXACT) == SliceSpan(until - H, until)
    with pytest.raises(QueryError, match="edges of slices of 5m") as caught:
        span_of(LEVELS, H, NOW, Mode.EXACT)
    assert caught.value.code == "bad_window"


@pytest.mark.parametrize(
    ("window", "until"), [(None, NOW), (0, NOW), (-5, NOW), (2**64, NOW), (H, 2**63)]
)
def test_windows_that_are_none_are_refused(window: int | None, until: int) -> None:
    with pytest.raises(QueryError) as caught:
        span_of(LEVELS, window, until, Mode.COVERING)
    assert caught.value.code == "bad_window"


def test_the_edge_of_a_slice_belongs_to_the_slice_that_begins_there() -> None:
    until = NOW - NOW % (5 * M)
    assert span_of(LEVELS, 5 * M, until, Mode.COVERING) == SliceSpan(until - 5 * M, until)
    assert span_of(LEVELS, 5 * M, until + 1, Mode.COVERING) == SliceSpan(
        until - 5 * M, until + 5 * M
    )


@given(st.integers(1, 30 * D), st.integers(30 * D, 2 * NOW))
def test_the_published_formulas_of_slices_that_a_window_falls_into_hold(
    window: int, until: int
) -> None:
    """With slices of one length L: first = floor((T - H) / L), last the one that holds the instant
    before T, X of them are read, and what is covered up to T is longer than H by less than L."""
    length = 5 * M
    span = span_of(LEVELS[:1], window, until, Mode.COVERING)
    first, last = (until - window) // length, (until - 1) // length
    read = list(pieces(LEVELS[:1], span))
    assert [piece.start_us for piece in read] == [
        index * length for index in range(first, last + 1)
    ]
    assert len(read) - -(-window // length) in (0, 1)
    assert until - span.start_us - window == (until - window) % length


# model.py: Questions and answers are plain values; an error is a sentence with a code.


def test_an_error_is_told_by_its_sentence_and_compared_by_its_code() -> None:
    error = QueryError("unknown_indicator", "no indicator is called 'clikcs'")
    assert str(error) == "no indicator is called 'clikcs'"
    assert error.code in CODES


def test_a_question_covers_what_it_touches_and_reads_what_is_durable_by_default() -> None:
    query = Query("clicks", 42, 3_600_000_000)
    assert (query.mode, query.consistency, query.until_us) == (
        Mode.COVERING,
        Consistency.DURABLE,
        None,
    )


def test_an_error_passes_through_a_context_manager() -> None:
    with pytest.raises(QueryError, match="negative"), contextlib.ExitStack():
        raise QueryError("bad_window", "the window is negative")
