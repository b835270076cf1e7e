from __future__ import annotations

import pytest

from millwheel.control.coordinator import effects as do
from millwheel.control.coordinator import events as ev
from millwheel.control.coordinator.state import CoordinatorState
from millwheel.core.formats.coordinator_messages import (
    Answer,
    Elect,
    Expired,
    Get,
    Join,
    Members,
    Pong,
    PushedTable,
    Put,
    StoredTable,
    WatchMembers,
    WatchTables,
    Won,
    WriteTable,
)

SECOND = 1_000_000


class Bench:
    """A machine, its clock, and what each session was told."""

    def __init__(self) -> None:
        self.state = CoordinatorState()
        self.now = 0
        self.told: dict[int, list[object]] = {}
        self.hung_up: list[int] = []

    def step(self, event: ev.Event) -> list[do.Effect]:
        effects = self.state.step(event, self.now)
        for effect in effects:
            if isinstance(effect, do.SendMessage):
                self.told.setdefault(effect.session, []).append(effect.message)
            elif isinstance(effect, do.HangUp):
                self.hung_up.append(effect.session)
        return effects

    def open(self, *sessions: int, timeout_us: int = 2 * SECOND) -> None:
        for session in sessions:
            self.step(ev.SessionOpened(session, timeout_us))

    def pass_time(self, seconds: float, alive: tuple[int, ...] = ()) -> None:
        """Ticks ten times a second; those who are ``alive`` ping before each."""
        for _ in range(round(seconds * 10)):
            self.now += SECOND // 10
            for session in alive:
                self.step(ev.HeartbeatArrived(session))
            self.step(ev.Ticked())


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_sign_of_life_is_answered(bench: Bench) -> None:
    bench.open(1)
    bench.step(ev.HeartbeatArrived(1))
    assert bench.told[1] == [Pong()]


def test_a_silent_session_ends_with_its_members_and_one_that_pings_does_not(bench: Bench) -> None:
    bench.open(1, 2)
    bench.step(ev.Asked(1, Join(1, "workers", "w.1", b"one")))
    bench.step(ev.Asked(2, Join(1, "workers", "w.2", b"two")))
    bench.step(ev.Asked(2, WatchMembers(2, "workers")))
    bench.pass_time(3, alive=(2,))
    assert bench.hung_up == [1]
    assert Expired() in bench.told[1]
    members = [message for message in bench.told[2] if isinstance(message, Members)]
    assert [sorted(each.members) for each in members] == [["w.1", "w.2"], ["w.2"]]


def test_nothing_is_done_for_a_session_that_has_ended(bench: Bench) -> None:
    bench.open(1)
    bench.pass_time(3)
    assert bench.step(ev.Asked(1, Join(1, "workers", "w.1", b""))) == []


def test_a_coordinator_that_was_stopped_itself_ends_nobody(bench: Bench) -> None:
    bench.open(1)
    bench.pass_time(1, alive=(1,))
    bench.now += 30 * SECOND  # the driver was suspended
    bench.step(ev.Ticked())
    bench.pass_time(1)
    assert bench.hung_up == []
    bench.pass_time(2)
    assert bench.hung_up == [1]


def test_tables_are_stored_before_anybody_is_told(bench: Bench) -> None:
    bench.open(1, 2)
    bench.step(ev.Asked(2, WatchTables(1)))
    effects = bench.step(ev.Asked(1, WriteTable(7, "traffic", b"{}", -1)))
    table = StoredTable("traffic", b"{}", 0)
    told = [do.SendMessage(1, Answer(7, 0)), do.SendMessage(2, PushedTable(table))]
    assert effects == [do.StoreTable(table), *told]


def test_a_write_on_another_version_is_refused_and_stores_nothing(bench: Bench) -> None:
    bench.open(1)
    bench.step(ev.Asked(1, WriteTable(1, "traffic", b"a", -1)))
    for version in (-1, 1, 5):
        [effect] = bench.step(ev.Asked(1, WriteTable(2, "traffic", b"b", version)))
        assert isinstance(effect, do.SendMessage)
        assert isinstance(effect.message, Answer)
        assert effect.message.refused is not None
        assert "has version 0" in effect.message.refused.why


def test_a_value_is_stored_once(bench: Bench) -> None:
    bench.open(1, 2)
    first = bench.step(ev.Asked(1, Put(1, "instance", b"a")))
    assert first == [do.StoreValue("instance", b"a"), do.SendMessage(1, Answer(1, b"a"))]
    assert bench.step(ev.Asked(2, Put(1, "instance", b"b"))) == [do.SendMessage(2, Answer(1, b"a"))]
    assert bench.step(ev.Asked(2, Get(2, "nothing"))) == [do.SendMessage(2, Answer(2, None))]


def test_what_an_earlier_run_has_stored_is_there(bench: Bench) -> None:
    bench.state = CoordinatorState([StoredTable("traffic", b"{}", 4)], {"instance": b"a"})
    bench.open(1)
    bench.step(ev.Asked(1, WriteTable(1, "traffic", b"b", 4)))
    bench.step(ev.Asked(1, Get(2, "instance")))
    assert bench.told[1] == [Answer(1, 5), Answer(2, b"a")]


def test_candidates_lead_in_the_order_in_which_they_came(bench: Bench) -> None:
    bench.open(1, 2, 3)
    for session in (1, 2, 3):
        bench.step(ev.Asked(session, Elect(1, "masters", f"m{session}", b"")))
    assert Won("masters", "m1") in bench.told[1]
    bench.step(ev.SessionClosed(2))
    assert Won("masters", "m3") not in bench.told[3]
    bench.step(ev.SessionClosed(1))
    assert bench.told[3].count(Won("masters", "m3")) == 1
