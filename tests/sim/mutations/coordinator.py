"""Deliberate mistakes of the embedded coordinator: they show only in clusters that coordinate by
it."""

from __future__ import annotations

from millwheel.control.coordinator import effects as do
from millwheel.control.coordinator import events as ev
from millwheel.control.coordinator.state import CoordinatorState
from millwheel.core.formats.coordinator_messages import Elect, PushedTable, Won, WriteTable
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=10, embedded=True, first=5)
def two_leaders_write_whatever_the_version() -> Context:
    """Everybody who stands for election leads, and compare-and-set does not compare: one overwrites
    what the other has decided. (Either alone does no harm: a single leader writes in order, and of
    two the table refuses one.)"""
    right = CoordinatorState.step

    def wrong(self: CoordinatorState, event: ev.Event, now_us: int) -> list[do.Effect]:
        match event:
            case ev.Asked(session, WriteTable(number, name, data)) if name in self._tables:
                event = ev.Asked(
                    session, WriteTable(number, name, data, self._tables[name].version)
                )
            case ev.Asked(session, Elect(_, role, name)) if self._waiting.get(role):
                return [*right(self, event, now_us), do.SendMessage(session, Won(role, name))]
        return right(self, event, now_us)

    return replaced(CoordinatorState, "step", wrong)


@mistake(within=10, embedded=True)
def members_stay_when_their_session_ends() -> Context:
    """A dead worker is a member for ever, so nobody takes its shards over."""

    def wrong(self: CoordinatorState, number: int) -> None:
        self._sessions.pop(number, None)

    return replaced(CoordinatorState, "_end", wrong)


@mistake(within=10, embedded=True)
def tables_are_not_stored() -> Context:
    """Only the memory of the server has the tables: killed, it begins with older ones."""
    right = CoordinatorState.step

    def wrong(self: CoordinatorState, event: ev.Event, now_us: int) -> list[do.Effect]:
        return [each for each in right(self, event, now_us) if not _again(each)]

    return replaced(CoordinatorState, "step", wrong)


@mistake(within=10, embedded=True)
def a_watch_of_tables_is_told_once() -> Context:
    """Whoever watches tables hears of those that exist, and of no new version: as if the watch had
    been lost."""
    right = CoordinatorState.step

    def wrong(self: CoordinatorState, event: ev.Event, now_us: int) -> list[do.Effect]:
        effects = right(self, event, now_us)
        if isinstance(event, ev.Asked) and isinstance(event.ask, WriteTable):
            return [
                each
                for each in effects
                if not (isinstance(each, do.SendMessage) and isinstance(each.message, PushedTable))
            ]
        return effects

    return replaced(CoordinatorState, "step", wrong)


def _again(effect: do.Effect) -> bool:
    return isinstance(effect, do.StoreTable) and effect.table.version > 2
