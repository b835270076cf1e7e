from __future__ import annotations

from millwheel.launch.stragglers import GRACE_S, JoinedWorker, Stragglers, read_members

A, B, A2 = JoinedWorker(0, 100), JoinedWorker(1, 200), JoinedWorker(0, 101)


def test_members_are_read_from_what_they_joined_with() -> None:
    assert read_members(
        {"w0-1": b'{"slot": 0, "pid": 100, "address": "h:1", "host": "h", "rack": "r"}'}
    ) == {"w0-1": JoinedWorker(0, 100, host="h", rack="r")}


def test_a_member_that_is_gone_has_time_to_end_and_is_then_named_once() -> None:
    stragglers = Stragglers()
    assert stragglers.step(frozenset({A, B}), 0.0) == []
    assert stragglers.step(frozenset({B}), 1.0) == []
    assert stragglers.step(frozenset({B}), 1.0 + GRACE_S - 0.1) == []
    assert stragglers.step(frozenset({B}), 1.0 + GRACE_S) == [A]
    assert stragglers.step(frozenset({B}), 100.0) == []


def test_one_whose_process_ended_after_it_left_is_not_named() -> None:
    stragglers = Stragglers()
    stragglers.step(frozenset({A, B}), 0.0)
    stragglers.step(frozenset({B}), 1.0)
    stragglers.ended(0)
    assert stragglers.step(frozenset({B, A2}), 100.0) == []


def test_one_whose_process_ended_before_it_left_is_not_named_but_its_successor_may_be() -> None:
    stragglers = Stragglers()
    stragglers.step(frozenset({A, B}), 0.0)
    stragglers.ended(0)
    stragglers.step(frozenset({A, B, A2}), 1.0)
    stragglers.step(frozenset({B, A2}), 2.0)
    assert stragglers.step(frozenset({B}), 50.0) == []
    assert stragglers.step(frozenset({B}), 50.0 + GRACE_S) == [A2]


def test_an_outage_in_which_nobody_is_seen_to_leave_names_nobody() -> None:
    stragglers = Stragglers()
    for second in range(0, 1000, 10):
        assert stragglers.step(frozenset({A, B}), float(second)) == []
