from __future__ import annotations

from millwheel.connect.connectors.external.meanings import MOST_TRIES, RowToBlameError, UnknownError
from millwheel.connect.connectors.external.tries import MOST_WITHOUT_SUCCESS, Next, Tries

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
