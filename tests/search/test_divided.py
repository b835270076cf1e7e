"""Which keys the search divides, and with which input."""

from __future__ import annotations

from tests.search.divided import divided, timely
from tests.search.generate import Unlucky, case
from tests.search.generate.pushes import LAST_CLOCK
from tests.search.script import Case, Clock, Finish, Push, Watermark

_SESSIONS = frozenset({"session_window", "aggregate", "windowed"})


def _cases(count: int) -> list[Case]:
    found = []
    for seed in range(1, count + 1):
        try:
            found.append(case(seed, _SESSIONS))
        except Unlucky:
            continue
    return [each for each in found if not each.refused]


def _divides_sessions(drawn: Case) -> bool:
    computations = divided(drawn.spec(), 3, drawn).computations
    pieces = [each.windowed for each in computations if each.name.startswith("partial.")]
    return any("session" in each.window.kind for each in pieces if each is not None)


def test_sessions_are_divided_in_several_cases_of_a_hundred_mostly_with_timely_input() -> None:
    cases = _cases(40)
    made = [timely(each, each.spec()) for each in cases]
    assert sum(map(_divides_sessions, made)) >= 5
    assert sum(map(_divides_sessions, cases)) < sum(map(_divides_sessions, made))


def test_timely_input_is_a_part_of_the_input_and_is_made_once() -> None:
    for drawn in _cases(20):
        made = timely(drawn, drawn.spec())
        assert timely(made, made.spec()) is made
        if made is not drawn:
            before = [
                value
                for action in drawn.script
                if isinstance(action, Push)
                for value in action.values
            ]
            after = [
                value
                for action in made.script
                if isinstance(action, Push)
                for value in action.values
            ]
            rest = iter(before)
            assert all(value in rest for value in after)
            assert Finish(None) in made.script


def test_what_waits_for_the_clock_fires_before_the_end_of_timely_input() -> None:
    yaml = (
        "pipeline: p\nstreams:\n  hits: {source: {injection: {}}, timestamp: at}\ncomputations:\n"
        "  c: {input: {hits: {key: k}}, window: {session: 5s}, aggregate: {n: count}, output: c}\n"
    )
    early, late = ({"at": at * 1_000_000, "k": "a"} for at in (1_000, 900))
    pushes = (Push("hits", (early,)), Watermark(1_000_000_000), Push("hits", (late,)))
    drawn = Case(1, yaml, (*pushes, Clock(7_000_000)), stated=True)
    assert timely(drawn, drawn.spec()).script == (
        *pushes[:2],
        Clock(7_000_000),
        Clock(7_000_000 + LAST_CLOCK),
        Finish(None),
    )
