"""The contract of external sinks holds for a sound target, and catches each of these broken
ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from millwheel.connect.connectors.external.sink import ExternalWriter, decode_rows
from millwheel.connect.connectors.external.target import ExternalTarget, Owner, RowsRefusedError
from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.errors import UnavailableError
from millwheel.testing.contracts import ExternalSinkContract, SinkWorld
from tests.fakes.small_database import SmallSink, SmallTarget, SmallWorld, ViolationError


class TestASoundTarget(ExternalSinkContract):
    def world(self) -> SinkWorld:
        return SmallWorld()


class TestASoundTargetThatTakesEverything(ExternalSinkContract):
    def world(self) -> SinkWorld:
        world = SmallWorld()
        world.refused = lambda: None  # type: ignore[assignment,method-assign,return-value]
        return world


class NumberApart(SmallTarget):
    """Rows and number in two transactions."""

    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        last, token = self.connection.lock(self.owner.name)
        self.owner.admits(token)
        if number > last:
            self.insert(records)
            self.connection.commit()
            self.connection.mark(self.owner.name, number, self.owner.token)
            self.connection.commit()


class NoNumber(SmallTarget):
    """The number is not noted."""

    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        try:
            self.insert(records)
            self.connection.commit()
        finally:
            self.connection.rollback()


class NumberNotCompared(SmallTarget):
    """Trusts the number that ``fence`` has read, whatever another owner has written since, and no
    token."""

    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        try:
            self.connection.lock(self.owner.name)
            self.insert(records)
            self.connection.mark(self.owner.name, number, self.owner.token)
            self.connection.commit()
        finally:
            self.connection.rollback()


class NoToken(SmallTarget):
    """Looks at the number only."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.owner = Owner(self.owner.name, 1)


class NoClaim(SmallTarget):
    """The token of a new owner is noted with its first rows only."""

    def fence(self) -> int:
        try:
            number, token = self.connection.lock(self.owner.name)
            self.owner.admits(token)
        finally:
            self.connection.rollback()
        return number


class RefusedRowsVanish(SmallTarget):
    def insert(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            try:
                self.connection.insert(record.value)
            except ViolationError:
                continue


class RestIsWrittenWithTheRefusal(SmallTarget):
    """The rows that can be written are, and then the others are told: they come again without
    these."""

    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        try:
            super().write(number, records)
        except RowsRefusedError as ex:
            super().write(
                number, [record for index, record in enumerate(records) if index not in ex.reasons]
            )
            self.database.marks[self.owner.name] = number - 1, self.owner.token
            raise


class AllAreRefused(SmallTarget):
    def insert(self, records: Sequence[SinkRecord]) -> None:
        try:
            super().insert(records)
        except RowsRefusedError as ex:
            raise RowsRefusedError(dict.fromkeys(range(len(records)), str(ex))) from None


class OtherWords(SmallTarget):
    def insert(self, records: Sequence[SinkRecord]) -> None:
        try:
            super().insert(records)
        except RowsRefusedError as ex:
            raise RowsRefusedError(dict.fromkeys(ex.reasons, "error")) from None


class Backwards(SmallTarget):
    def insert(self, records: Sequence[SinkRecord]) -> None:
        super().insert(records[::-1])


class DropsWhileAway(SmallTarget):
    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        try:
            super().write(number, records)
        except UnavailableError:
            return


class EndsWhileAway(SmallTarget):
    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        try:
            super().write(number, records)
        except UnavailableError as ex:
            raise PermissionError(1, str(ex)) from ex


class AlwaysSays(SmallTarget):
    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        try:
            super().write(number, records)
        except UnavailableError:
            logging.getLogger("millwheel.small").warning("the target is away")
            raise


class Careless(SmallSink):
    """Sinks with another writer, which is wrong in one way."""

    writer: type[ExternalWriter]

    def open(self, shard: str, token: int) -> ExternalWriter:
        made = super().open(shard, token)
        made.__class__ = self.writer
        return made


class Nameless(SmallSink):
    def open(self, shard: str, token: int) -> ExternalWriter:
        self.identity = self.identity or "anonymous"
        return super().open(shard, token)


class ShowsEarly(Careless):
    class Writer(ExternalWriter):
        def prepare(self, batch: SinkBatch) -> bytes:
            committable = super().prepare(batch)
            self.publish(committable)
            return committable

    writer = Writer


class InTheLoop(Careless):
    class Writer(ExternalWriter):
        publishes_aside = False

    writer = Writer


class WithoutLane(Careless):
    class Writer(ExternalWriter):
        lane = property(lambda self: "", lambda self, name: None)  # type: ignore[assignment]

    writer = Writer


class RemembersInMemory(Careless):
    """After a lost reply it takes the batch for written."""

    class Writer(ExternalWriter):
        def publish(self, committable: bytes) -> None:
            number = decode_rows(committable).number
            try:
                super().publish(committable)
            except UnavailableError:
                self._last = number
                raise

    writer = Writer


ORDER = "test_batches_appear_once_and_in_their_order"
EARLY = "test_nothing_is_visible_before_it_is_published"
CRASH = "test_a_crash_at_any_call_loses_and_doubles_nothing"
AGAIN = "test_a_second_crash_during_recovery_loses_and_doubles_nothing"
LOST = "test_lost_calls_and_lost_replies_lose_and_double_nothing"
ZOMBIE = "test_a_zombie_between_any_two_calls_adds_nothing"
ROOT = "test_a_sink_without_its_root_is_refused"
TOKEN = "test_a_higher_token_shuts_out_the_former_owner"
AWAY = "test_a_target_that_is_away_stops_nobody_else_and_loses_nothing"
REFUSED = "test_a_refused_row_is_one_dead_letter_and_the_others_are_written"
BETWEEN = "test_a_crash_between_a_refusal_and_the_rest_of_the_batch_keeps_both"

BROKEN: list[tuple[type[SmallTarget] | type[SmallSink], list[str]]] = [
    (NumberApart, [CRASH, AGAIN, LOST]),
    (NoNumber, [ORDER, CRASH, LOST, ZOMBIE, TOKEN]),
    (NumberNotCompared, [ZOMBIE, TOKEN]),
    (NoToken, [TOKEN]),
    (NoClaim, [TOKEN]),
    (RefusedRowsVanish, [REFUSED]),
    (RestIsWrittenWithTheRefusal, [REFUSED, BETWEEN]),
    (AllAreRefused, [REFUSED]),
    (OtherWords, [REFUSED]),
    (Backwards, [ORDER]),
    (DropsWhileAway, [AWAY, LOST]),
    (EndsWhileAway, [AWAY]),
    (AlwaysSays, [AWAY]),
    (Nameless, [ROOT]),
    (ShowsEarly, [EARLY, CRASH]),
    (InTheLoop, [AWAY]),
    (WithoutLane, [AWAY]),
    (RemembersInMemory, [AWAY, LOST]),
]


@pytest.mark.parametrize(
    ("broken", "check"),
    [(broken, check) for broken, checks in BROKEN for check in checks],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_broken_target_is_caught(broken: Any, check: str) -> None:
    class Suite(ExternalSinkContract):
        def world(self) -> SinkWorld:
            return (
                SmallWorld(broken)
                if issubclass(broken, ExternalTarget)
                else SmallWorld(sink=broken)
            )

    with pytest.raises(AssertionError):
        getattr(Suite(), check)()


def test_each_check_catches_a_broken_target() -> None:
    checks = {name for name in dir(ExternalSinkContract) if name.startswith("test_")}
    assert checks == {check for _, caught in BROKEN for check in caught}
