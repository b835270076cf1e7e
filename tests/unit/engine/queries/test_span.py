"""The span that answers for a window, and the few slices that make it up."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.slices.levels import slice_levels
from millwheel.engine.queries.model import CODES, Consistency, Mode, Query, QueryError
from millwheel.engine.queries.span import SliceSpan, pieces, span_of

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
