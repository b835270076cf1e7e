from __future__ import annotations

from dataclasses import dataclass

from millwheel.adapters.clock import SteadyClock


@dataclass
class TwoClocks:
    wall: int = 1_000_000
    monotonic: int = 50

    def now_us(self) -> int:
        return self.wall

    def monotonic_us(self) -> int:
        return self.monotonic

    def passes(self, us: int) -> None:
        self.wall += us
        self.monotonic += us


def test_a_clock_that_goes_right_is_followed_exactly() -> None:
    clocks = TwoClocks()
    steady = SteadyClock(clocks)
    for us in (0, 1, 7, 500, 3_600_000_000):
        clocks.passes(us)
        assert steady.now_us() == clocks.wall
        assert steady.monotonic_us() == clocks.monotonic


def test_a_clock_that_is_set_forward_is_followed_at_once() -> None:
    clocks = TwoClocks()
    steady = SteadyClock(clocks)
    clocks.wall += 10_000_000
    assert steady.now_us() == clocks.wall


def test_a_clock_that_is_set_back_goes_on_at_half_speed_until_it_has_been_caught_up_with() -> None:
    clocks = TwoClocks()
    steady = SteadyClock(clocks)
    clocks.wall -= 1_000
    clocks.passes(600)
    assert steady.now_us() == 1_000_300
    clocks.passes(1_399)
    assert steady.now_us() == 1_000_999
    clocks.passes(1)
    assert steady.now_us() == clocks.wall == 1_001_000
    clocks.passes(5)
    assert steady.now_us() == clocks.wall


def test_it_goes_on_however_often_it_is_asked() -> None:
    clocks = TwoClocks()
    steady = SteadyClock(clocks)
    clocks.wall -= 10_000_000
    seen = []
    for _ in range(1_000):
        clocks.passes(1)
        seen.append(steady.now_us())
    assert seen == sorted(seen)
    assert seen[-1] == 1_000_500
