"""Dead letters as values: what can be tried again, and how they are grouped."""

from __future__ import annotations

import pytest

from millwheel.core.pipeline.replays import KEY, LINE, RECORD
from millwheel.engine.letters.letters import Letter, grouped


def letter(what: str, **given: object) -> Letter:
    fields: dict[str, object] = {
        "computation": "visits",
        "reason": "no",
        "stream": "hits",
        "timestamp": 1,
        "what": what,
    }
    return Letter(**{**fields, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "again"),
    [
        (letter("record"), RECORD),
        (letter("record", timestamp=None), ""),
        (letter("record", stream=""), ""),
        (letter("key of hits"), KEY),
        (letter("line", computation="source.hits"), LINE),
        (letter("line"), ""),
        (letter("timer"), ""),
        (letter("window"), ""),
        (letter("production"), ""),
        (letter("injection", computation="source.hits"), ""),
        (letter(""), ""),
    ],
)
def test_records_keys_and_lines_can_be_tried_again_and_nothing_else(
    given: Letter, again: str
) -> None:
    assert given.again == again


def test_a_letter_is_of_its_computation_and_a_line_of_its_stream() -> None:
    line = letter("line", computation="source.hits", reason="no JSON")
    for computation, reason in [("hits", ""), ("source.hits", "JSON"), ("", "")]:
        assert line.matches(computation, reason)
    for computation, reason in [("visits", ""), ("hits", "CSV")]:
        assert not line.matches(computation, reason)


def test_a_record_that_fails_again_keeps_its_history() -> None:
    again = letter("record", attempts=3, id="f:7").wanted()
    assert [(past.reason, past.attempts) for past in again.history] == [("no", 3)]
    assert again.letter == "f:7"


def test_letters_are_grouped_by_computation_and_kind_the_most_first() -> None:
    one = letter("record", error="TypeError", location="a.py:1", id="1", written_s=5.0)
    two = letter("record", error="TypeError", location="a.py:1", id="2", written_s=3.0)
    other = letter("record", error="KeyError", location="a.py:2", id="3", written_s=9.0)
    first, second = grouped([other, one, two], frozenset({"2"}))
    assert (first.count, first.replayed, first.first_s, first.last_s) == (2, 1, 3.0, 5.0)
    assert (second.count, second.replayed, second.example) == (1, 0, other)
