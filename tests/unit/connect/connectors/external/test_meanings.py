from __future__ import annotations

import asyncio
import errno

import pytest

from millwheel.connect.connectors.external.meanings import (
    MOST_TRIES,
    MOST_WITHOUT_SUCCESS,
    Meaning,
    Next,
    RowToBlameError,
    Tries,
    UnknownError,
    in_words,
    is_of_client,
    named,
    of_python,
)
from millwheel.errors import MillwheelError, SetupError, UnavailableError


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "meaning", "kind"),
    [
        (ConnectionResetError("gone"), Meaning.ABSENT, UnavailableError),
        (BrokenPipeError(errno.EPIPE, "gone"), Meaning.ABSENT, UnavailableError),
        (TimeoutError("late"), Meaning.ABSENT, UnavailableError),
        (OSError(errno.ENOSPC, "full"), Meaning.ABSENT, UnavailableError),
        (PermissionError(errno.EACCES, "no"), Meaning.MEND, SetupError),
        (OSError(errno.EROFS, "read only"), Meaning.MEND, SetupError),
        (OSError("no number"), Meaning.UNKNOWN, UnknownError),
        (OverflowError("too large"), Meaning.ROWS, RowToBlameError),
        (TypeError("no text"), Meaning.ROWS, RowToBlameError),
        (KeyError("x"), Meaning.UNKNOWN, UnknownError),
    ],
)
def test_an_error_of_python_means_one_thing_and_is_told_as_such(
    error: Exception, meaning: Meaning, kind: type[MillwheelError]
) -> None:
    assert of_python(error) is meaning
    told = in_words(error, "the table sales")
    assert type(told) is kind
    assert str(told).startswith(f"the table sales: {named(error)}")


def test_an_error_of_ours_stays_as_it_is() -> None:
    ours = UnavailableError("the disk is full")
    assert in_words(ours, "the table sales") is ours
    assert of_python(ours) is Meaning.ABSENT


def test_an_error_is_one_line_even_without_a_text() -> None:
    assert named(ValueError("two\n  lines")) == "ValueError: two lines"
    assert named(ValueError()) == "ValueError"
    assert named(NoText()) == "NoText"


def test_a_client_that_panics_exits_or_is_cancelled_does_not_end_the_thread() -> None:
    panic = type("PanicException", (BaseException,), {})
    group = type("BaseExceptionGroup", (BaseException,), {})  # of tasks, one of which has panicked
    assert all(
        is_of_client(error)
        for error in (panic(), group(), SystemExit(1), asyncio.CancelledError(), KeyError())
    )
    assert not any(is_of_client(error) for error in (KeyboardInterrupt(), GeneratorExit()))


BLAMED, STRANGE = RowToBlameError("too large"), UnknownError("odd")


def until_decided(tries: Tries, rows: int) -> tuple[int, Next]:
    """How often a batch of so many rows fails with an unknown error until it is not tried again,
    and what follows."""
    count = 1
    while (what := tries.failed(STRANGE, rows)) is Next.AGAIN:
        count += 1
    return count, what


def test_a_row_to_blame_is_looked_for_without_another_try() -> None:
    tries = Tries()
    assert tries.failed(BLAMED, 8) is Next.HALVE
    assert [tries.failed(BLAMED, 1) for _ in range(MOST_WITHOUT_SUCCESS + 1)] == [Next.REFUSE] * (
        MOST_WITHOUT_SUCCESS + 1
    )


def test_the_halves_of_a_batch_that_failed_in_all_its_tries_are_tried_twice_each() -> None:
    tries = Tries()
    assert until_decided(tries, 4) == (MOST_TRIES, Next.HALVE)
    assert until_decided(tries, 2) == (2, Next.HALVE)
    for _ in range(3):
        tries.worked()
    assert until_decided(tries, 4) == (MOST_TRIES, Next.HALVE)


def test_single_rows_that_all_fail_strangely_stop_the_run_unless_one_works_in_between() -> None:
    tries = Tries()
    assert [until_decided(tries, 1)[1] for _ in range(MOST_WITHOUT_SUCCESS - 1)] == [
        Next.REFUSE,
        Next.REFUSE,
    ]
    tries.worked()
    assert [until_decided(tries, 1)[1] for _ in range(MOST_WITHOUT_SUCCESS)] == [
        Next.REFUSE,
        Next.REFUSE,
        Next.STOP,
    ]


def test_a_question_that_keeps_failing_stops_the_run_and_an_answer_begins_the_count_anew() -> None:
    tries = Tries()
    assert [tries.failed(STRANGE, 0) for _ in range(MOST_TRIES - 1)] == [Next.AGAIN] * (
        MOST_TRIES - 1
    )
    tries.answered()
    assert until_decided(tries, 0) == (MOST_TRIES, Next.STOP)
