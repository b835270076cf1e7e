from __future__ import annotations

import io

import pytest

from millwheel.testing.contracts import Killed, Outside, WatchedClient
from millwheel.tools.testing.contracts.outside import kill


def test_after_a_kill_nothing_works_any_more() -> None:
    outside = Outside()
    outside.after[1] = kill
    done: list[int] = []
    outside.call("first", done.append, 1)
    with pytest.raises(Killed):
        outside.call("second", done.append, 2)
    with pytest.raises(Killed):
        outside.call("third", done.append, 3)
    assert (done, outside.calls) == ([1, 2], ["first", "second"])


def test_a_target_that_is_away_is_not_called() -> None:
    outside = Outside()
    outside.away = lambda: ConnectionError("away")
    with pytest.raises(ConnectionError):
        outside.call("first", pytest.fail, "it was called")


def test_the_methods_of_a_watched_object_and_of_what_it_makes_are_calls() -> None:
    class Connection:
        closed = False

        def cursor(self) -> io.StringIO:
            return io.StringIO("a\nb\n")

    outside = Outside()
    watched = WatchedClient(Connection(), outside, ["readline"], made=["cursor"])
    with watched.cursor() as cursor:
        assert cursor.readline() == "a\n"
        assert list(cursor) == ["b\n"]
    assert (outside.calls, watched.closed) == (["readline"], False)
