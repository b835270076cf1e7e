"""The guarantees of each exactly-once sink, checked by crashes, zombies and lost replies at every
external call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from millwheel.connect.sinks.base import LostError, Writer
from millwheel.errors import FencedError, UnavailableError
from millwheel.tools.testing.contracts.outside import Killed, Outside, kill
from millwheel.tools.testing.contracts.worlds import ROWS, ShardLife, SinkWorld


class SinkContract(ABC):
    """A base class for a test class; its methods are tests for pytest."""

    batches = 2
    """How many batches one life writes. More take longer and find little more."""
    every = 1
    """Faults are tried at every n-th call. Raise it for a target with slow calls."""
    together = 1
    """How many faults are tried at the same time, each in a world and on a thread of its own. Raise
    it for a target that answers slowly."""
    whole_batches = True
    """Whether readers see a batch completely or not at all."""

    @abstractmethod
    def world(self) -> SinkWorld:
        """A new world with an empty target."""

    @contextmanager
    def life(self, batches: int = 0) -> Iterator[ShardLife]:
        """A new world and a shard in it."""
        world = self.world()
        try:
            yield ShardLife(
                world,
                [
                    world.value(n, row)
                    for n in range(batches or self.batches)
                    for row in range(ROWS)
                ],
            )
        finally:
            world.close()

    def expect(self, life: ShardLife, where: str, letters: Sequence[Any] = ()) -> None:
        """Assert that each row is visible once and in order. ``letters`` are the rows that the
        target refused."""
        expected, visible = life.expected(), life.world.rows()
        assert visible == expected, f"{where}: a reader sees\n{visible}, not\n{expected}"
        assert [letter.value for letter in life.letters] == list(letters), (
            f"{where}: dead letters: {life.letters}"
        )

    def calls_of_a_life(self) -> list[str]:
        """The external calls of an undisturbed owner."""
        with self.life() as life:
            outside = Outside()
            life.owned(outside)
            self.expect(life, "without faults")
            assert outside.calls, (
                "the sink made no call through outside.call(): there is nothing to test"
            )
            return outside.calls

    # --- the checks

    def test_batches_appear_once_and_in_their_order(self) -> None:
        with self.life(5) as life:
            writer = life.owned(Outside())
            for number in (4, 0, 3):
                life.publish(writer, number)
            self.expect(life, "after batches were published again")
            life.owned(Outside())
            self.expect(life, "after another owner published all batches again")

    def test_nothing_is_visible_before_it_is_published(self) -> None:
        with self.life() as life:
            life.prepare(life.writer(Outside()))
            assert life.world.rows() == [], (
                "a reader sees rows that are not committed: after a crash they come again"
            )

    def test_a_crash_at_any_call_loses_and_doubles_nothing(self) -> None:
        def crash(number: int, call: str, when: str) -> None:
            with self.life() as life:
                self._crashes(life, when, number)
                where = f"a crash {when} call {number} ({call})"
                self._whole(life, where)
                life.owned(Outside())
                self.expect(life, where)

        self.side_by_side(crash, self._faults())

    def test_a_second_crash_during_recovery_loses_and_doubles_nothing(self) -> None:
        calls = self.calls_of_a_life()
        step = max(3, self.every, len(calls) // 5)

        def crash_twice(first: int, second: int) -> None:
            with self.life() as life:
                self._crashes(life, "after", first)
                self._crashes(life, "after", second)
                life.owned(Outside())
                self.expect(
                    life,
                    f"crashes after calls {first} and {second} ({calls[first]}, {calls[second]})",
                )

        firsts = range(0, len(calls), step)
        self.side_by_side(
            crash_twice, ((one, two) for one in firsts for two in range(one % 2, len(calls), step))
        )

    def test_lost_calls_and_lost_replies_lose_and_double_nothing(self) -> None:
        def lose(number: int, call: str, when: str) -> None:
            with self.life() as life:
                outside = Outside()
                getattr(outside, when)[number] = _raises(life.world.lost)
                try:
                    life.owned(outside)
                except AssertionError:
                    raise
                except Exception:  # the worker dies, and the next one continues
                    life.owned(Outside())
                lost = "call" if when == "before" else "reply"
                self.expect(life, f"the {lost} of call {number} ({call}) was lost")

        self.side_by_side(lose, self._faults())

    def test_a_zombie_between_any_two_calls_adds_nothing(self) -> None:
        def come_back(number: int, call: str, _: str) -> None:
            with self.life(self.batches + 1) as life:
                old = life.writer(Outside())
                for _batch in range(self.batches):
                    life.prepare(old)
                life.publish(old, 0)
                outside = Outside()
                outside.before[number] = partial(self._publishes_again, life, old)
                life.owned(outside)
                self._publishes_again(life, old)
                self.expect(
                    life, f"a former owner came back before call {number} ({call}) of its successor"
                )

        self.side_by_side(come_back, (fault for fault in self._faults() if fault[2] == "before"))

    # --- how they are done

    def side_by_side(self, check: Callable[..., None], faults: Iterable[tuple[Any, ...]]) -> None:
        """Try each of the faults, :attr:`together` at a time."""
        if self.together == 1:
            for fault in faults:
                check(*fault)
            return
        with ThreadPoolExecutor(self.together) as pool:
            for done in [pool.submit(check, *fault) for fault in faults]:
                done.result()

    def _faults(self) -> Iterator[tuple[int, str, str]]:
        calls = self.calls_of_a_life()
        for number in range(0, len(calls), self.every):
            for when in ("before", "after"):
                yield number, calls[number], when

    def _crashes(self, life: ShardLife, when: str, number: int) -> None:
        outside = Outside()
        getattr(outside, when)[number] = kill
        try:
            life.owned(outside)
        except Killed:
            return

    def _whole(self, life: ShardLife, where: str) -> None:
        """Assert that no part of a batch is visible, and no batch before an earlier one."""
        if not self.whole_batches:
            return
        visible, whole = (
            life.world.rows(),
            [life.expected(number) for number in range(len(life.taken) + 1)],
        )
        assert visible in whole, (
            f"{where}: a reader sees a part of a batch, or one that is not committed: {visible}"
        )

    def _publishes_again(self, life: ShardLife, old: Writer) -> None:
        """A former owner publishes every batch whose commit it has seen."""
        for committable in life.committables[: self.batches]:
            try:
                old.publish(committable)
            except (UnavailableError, FencedError, LostError):
                return


def _raises(make: Callable[[], Exception]) -> Callable[[], Any]:
    def act() -> None:
        raise make()

    return act
