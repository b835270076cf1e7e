"""Which windows of a key a question means."""

from __future__ import annotations

import pytest

from millwheel.queries.model import Finding, Mode, Query, QueryError
from millwheel.workers.state.kept_windows import KeptWindow, of_windows

OPEN = [KeptWindow(10, 20, {"n": 2, "m": 5}), KeptWindow(20, 30, {"n": 1, "m": 6})]
LATEST = KeptWindow(0, 10, {"n": 7, "m": 8})


def test_no_time_means_the_newest_result_and_a_time_the_window_that_begins_then() -> None:
    assert of_windows(Query("c", 1), OPEN, LATEST, True, 15) == Finding({"n": 7, "m": 8}, 0, 10, True)
    assert of_windows(Query("c.n", 1, until_us=20), OPEN, LATEST, True, 15) == Finding({"n": 1}, 20, 30, False)
    assert of_windows(Query("c", 1, until_us=0), OPEN, LATEST, True, 9).complete is False


def test_all_that_are_open_are_a_list_of_one_value() -> None:
    rows = [{"window_start": 10, "window_end": 20, "n": 2}, {"window_start": 20, "window_end": 30, "n": 1}]
    assert of_windows(Query("c.n", 1, mode=Mode.OPEN), OPEN, LATEST, True, 30) == Finding({"windows": rows}, 10, 30)
    assert of_windows(Query("c", 1, mode=Mode.OPEN), [], None, False, 30) == Finding({"windows": []})


@pytest.mark.parametrize(
    ("query", "latest", "keeps", "code"),
    [
        (Query("c", 1, window_us=5), LATEST, True, "bad_window"),
        (Query("c", 1), None, False, "not_asked"),
        (Query("c", 1), None, True, "beyond_keep"),
        (Query("c", 1, until_us=5), LATEST, True, "beyond_keep"),
        (Query("c.x", 1), LATEST, True, "unknown_indicator"),
    ],
)
def test_what_has_no_answer_is_an_error_with_a_code(
    query: Query, latest: KeptWindow | None, keeps: bool, code: str
) -> None:
    with pytest.raises(QueryError) as caught:
        of_windows(query, OPEN, latest, keeps, 15)
    assert caught.value.code == code
