"""Questions and answers are plain values; an error is a sentence with a code."""

from __future__ import annotations

import contextlib

import pytest

from millwheel.engine.queries.model import CODES, Consistency, Mode, Query, QueryError


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
