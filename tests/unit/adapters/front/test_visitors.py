"""Who may come in, who goes for a newcomer, and whose time is over."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.front.limits import FrontLimits
from millwheel.adapters.front.visitors import (
    _COUNTED,
    _PATIENCE_S,
    STRANGERS,
    Room,
    Visitor,
    Visitors,
    VisitPhase,
)

NEAR, FAR, OTHER = "127.0.0.1", "10.1.1.1", "10.1.1.2"
SMALL = FrontLimits(strangers=3, most=2, per_address=2, grace_s=0.5, silent_s=5, head_s=10)


def newcomer(address: str = NEAR) -> Visitor:
    return Visitor(address, lambda: None)


def arrived(visitors: Visitors, now_s: float, address: str = NEAR) -> Visitor:
    assert visitors.make_room(now_s).wait_s == 0
    visitor = newcomer(address)
    visitors.arrive(visitor, now_s)
    return visitor


def test_the_oldest_silent_one_goes_when_there_are_too_many() -> None:
    visitors = Visitors(SMALL)
    first, second, _ = (arrived(visitors, at) for at in (0, 1, 2))
    visitors.advance(first, VisitPhase.HEAD, 2)  # it has begun to speak
    assert visitors.make_room(3) == Room(displaced=second)
    assert second.left
    assert visitors.strangers == 2


def test_nobody_is_displaced_before_it_could_say_a_word() -> None:
    visitors = Visitors(SMALL)
    for at in (0, 0.1, 0.2):
        arrived(visitors, at)
    assert visitors.make_room(0.2) == Room(wait_s=0.3)
    assert visitors.make_room(0.5).displaced is not None


def test_those_that_trickle_go_when_nobody_is_silent() -> None:
    visitors = Visitors(SMALL)
    several = [arrived(visitors, at) for at in range(3)]
    for visitor in several:
        visitors.advance(visitor, VisitPhase.HEAD, 3)
    visitors.advance(several[0], VisitPhase.BODY, 3)
    assert visitors.make_room(4).displaced is several[1]


def test_nobody_goes_whose_words_were_not_read() -> None:
    visitors = Visitors(SMALL)
    several = [arrived(visitors, at) for at in range(3)]
    for visitor in several:
        visitors.advance(visitor, VisitPhase.HEAD, 3)
        visitor.unread = lambda: True
    assert visitors.make_room(4) == Room(wait_s=0.5)
    several[2].unread = lambda: False
    assert visitors.make_room(4) == Room(displaced=several[2])
    visitors.advance(arrived(visitors, 5), VisitPhase.HEAD, 5)
    assert visitors.make_room(6).displaced is several[0], (
        "nobody keeps a place by words that nobody reads"
    )


def test_a_member_and_a_probe_are_never_displaced() -> None:
    visitors = Visitors(SMALL)
    member, probe = arrived(visitors, 0), arrived(visitors, 0)
    assert visitors.advance(member, VisitPhase.ADMITTED, 0)
    assert visitors.advance(probe, VisitPhase.PROBE, 0)
    for at in range(1, 50):
        arrived(visitors, at)
    assert not member.left
    assert not probe.left


def test_a_probe_is_answered_when_all_others_must_wait() -> None:
    visitors = Visitors(SMALL)
    for _ in range(2):
        assert visitors.advance(arrived(visitors, 0), VisitPhase.ANSWER, 0)
    late = arrived(visitors, 0)
    assert not visitors.advance(late, VisitPhase.ANSWER, 0)
    assert visitors.advance(late, VisitPhase.PROBE, 0)


def test_one_address_has_its_share_only_and_displaces_its_own() -> None:
    visitors = Visitors(SMALL)
    theirs = [arrived(visitors, at, FAR) for at in (0, 1)]
    third = newcomer(FAR)
    assert visitors.arrive(third, 2) == Room(displaced=theirs[0])
    assert visitors.arrive(newcomer(FAR), 1.2).wait_s > 0, "refused: its others are young"
    assert visitors.arrive(newcomer(OTHER), 1.2) == Room()


def test_one_address_does_not_take_all_rooms_of_the_admitted() -> None:
    visitors = Visitors(FrontLimits(most=10, per_address=2))
    assert [
        visitors.advance(arrived(visitors, 0, FAR), VisitPhase.ADMITTED, 0) for _ in range(3)
    ] == [
        True,
        True,
        False,
    ]
    assert visitors.advance(arrived(visitors, 0, OTHER), VisitPhase.ADMITTED, 0)


def test_members_and_strangers_of_this_machine_share_an_address_without_a_quota() -> None:
    visitors = Visitors(FrontLimits(most=10, per_address=1))
    assert all(
        visitors.advance(arrived(visitors, 0, each), VisitPhase.ADMITTED, 0)
        for each in (NEAR, "127.0.0.9", "::1") * 2
    )


def test_each_phase_has_its_deadline() -> None:
    visitors = Visitors(SMALL)
    silent, trickling = arrived(visitors, 0), arrived(visitors, 0)
    visitors.advance(trickling, VisitPhase.HEAD, 1)
    assert visitors.next_due_s() == 5
    assert visitors.overdue(4.9) == []
    assert visitors.overdue(5) == [silent]
    assert visitors.overdue(11) == [silent, trickling]
    visitors.leave(silent)
    visitors.advance(trickling, VisitPhase.ADMITTED, 11)
    assert visitors.next_due_s() is None


def test_who_has_left_gets_no_further() -> None:
    visitors = Visitors(SMALL)
    gone = arrived(visitors, 0)
    visitors.leave(gone)
    visitors.leave(gone)
    assert not visitors.advance(gone, VisitPhase.ADMITTED, 0)
    assert (visitors.strangers, visitors.admitted) == (0, 0)


LIVED = FrontLimits(strangers=3, most=3, per_address=2, grace_s=0.5, silent_s=3, head_s=5)
Step = tuple[str | VisitPhase, int, str]
STEPS = st.tuples(
    st.sampled_from(["arrive", "arrive", "leave", "time", "says", *VisitPhase]),
    st.integers(0, 20),
    st.sampled_from([NEAR, FAR, OTHER]),
)


def lived_through(steps: Sequence[Step]) -> None:
    """What every moment of a listener must show, whatever its visitors do. Raises
    AssertionError."""
    visitors, everybody, unread = Visitors(LIVED), list[Visitor](), set[int]()
    for index, (step, which, address) in enumerate(steps):
        now_s = index / 4
        members = [each for each in everybody if each.phase not in STRANGERS and not each.left]
        if step == "arrive":
            room = visitors.make_room(now_s)
            assert room.displaced is None or now_s - room.displaced.since_s >= LIVED.grace_s
            late = (
                room.displaced is not None
                and now_s - room.displaced.since_s > LIVED.grace_s + _PATIENCE_S
            )
            assert room.displaced is None or late or id(room.displaced) not in unread, (
                "its words were not read yet"
            )
            if not room.wait_s and not visitors.arrive(guest := newcomer(address), now_s).wait_s:
                everybody.append(guest)
            assert not [each for each in members if each.left], "a member made room"
        elif step == "time":
            for late in visitors.overdue(now_s):
                visitors.leave(late)
        elif everybody and step == "says":
            said = everybody[which % len(everybody)]
            said.unread = lambda said=said: id(said) in unread  # type: ignore[misc]
            unread ^= {id(said)}
        elif everybody and isinstance(step, VisitPhase):
            visitors.advance(everybody[which % len(everybody)], step, now_s)
        elif everybody:
            visitors.leave(everybody[which % len(everybody)])
        present = [each for each in everybody if not each.left]
        strangers = [each for each in present if each.phase in STRANGERS]
        assert visitors.admitted <= LIVED.most
        assert visitors.strangers == len(strangers)
        for far in (FAR, OTHER):
            admitted = [each for each in present if each.address == far and each.phase in _COUNTED]
            assert len(admitted) <= LIVED.per_address
        if step == "time":
            assert not [
                each
                for each in present
                if each.since_s + (visitors.limit_s(each.phase) or now_s) < now_s
            ]


@given(st.lists(STEPS, max_size=60))
def test_bounds_hold_and_members_stay_whatever_visitors_do(steps: list[Step]) -> None:
    lived_through(steps)


def displacing(visitors: Visitors, phases: Sequence[VisitPhase], at: int) -> Room:
    chosen = [each for phase in phases for each in visitors._phases[phase]][at]
    visitors.leave(chosen)
    return Room(displaced=chosen)


def a_member_makes_room(visitors: Visitors, address: str, now_s: float) -> Room:
    """The oldest of all goes, whoever it is."""
    return displacing(visitors, (VisitPhase.ADMITTED, *STRANGERS), 0)


def nobody_has_time(visitors: Visitors, address: str, now_s: float) -> Room:
    """A newcomer displaces whoever came a moment ago."""
    return displacing(visitors, STRANGERS, -1)


def nobody_is_listened_to(
    visitors: Visitors, address: str, now_s: float, true: Any = Visitors._displacing
) -> Room:
    """Whoever has said something that was not read goes as well."""
    for phase in STRANGERS:
        for each in visitors._phases[phase]:
            each.unread = lambda: False
    room: Room = true(visitors, address, now_s)
    return room


MISTAKES = {
    "_displacing": [a_member_makes_room, nobody_has_time, nobody_is_listened_to],
    "_admits": [
        lambda visitors, address: True,
        lambda visitors, address: visitors.admitted < LIVED.most,
    ],
    "overdue": [
        lambda visitors, now_s: [],
        lambda visitors, now_s: list(visitors._phases[VisitPhase.HEAD]),
    ],
}


@pytest.mark.parametrize(
    ("name", "wrong"), [(name, each) for name, several in MISTAKES.items() for each in several]
)
def test_every_deliberate_mistake_is_noticed(
    name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Visitors, name, wrong)
    kinds = ["arrive", "arrive", "leave", "time", "says", *VisitPhase]
    for seed in range(200):
        draw = random.Random(seed)
        addresses = [NEAR, FAR, FAR, OTHER]
        steps = [
            (draw.choice(kinds), draw.randrange(20), draw.choice(addresses)) for _ in range(60)
        ]
        try:
            lived_through(steps)
        except AssertionError:
            return
    pytest.fail("nobody noticed")
