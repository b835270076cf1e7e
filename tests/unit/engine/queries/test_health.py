"""How well a worker is, and how it says so."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from millwheel.engine.queries.health import POOR, ErrorShare, Health, degree_in


@pytest.mark.parametrize(
    ("health", "degree"),
    [
        (Health(), 1.0),
        (Health(lag_s=0.2, memory=0.9, disk=0.92, errors=0.05), 1.0),
        (Health(lag_s=1.1), 0.5),
        (Health(lag_s=60.0), 0.0),
        (Health(lag_s=0.3, memory=0.99), 0.0),
        (Health(disk=1.0), 0.0),
        (Health(errors=0.4), 2 / 9),
    ],
)
def test_the_degree_is_that_of_the_worst_measure(health: Health, degree: float) -> None:
    assert health.degree == pytest.approx(degree)
    assert degree_in(b"# Server\r\nredis_version:7\r\n" + health.section()) == pytest.approx(
        degree, abs=0.01
    )


def test_whoever_says_nothing_of_its_health_is_well() -> None:
    assert degree_in(b"# Server\r\nredis_version:7.0.0\r\n") == 1.0
    assert degree_in(b"health:bad\r\n") == 1.0
    assert degree_in(None) == 1.0
    assert POOR < 1


def count(errors: ErrorShare, replies: int, failures: int = 0) -> None:
    for number in range(replies):
        errors.replied(number < failures)


def test_errors_count_for_a_while_and_are_forgotten_without_further_replies() -> None:
    errors = ErrorShare()
    errors.share(100.0)
    count(errors, 10, failures=5)
    assert errors.share(101.0) == 0.5
    assert errors.share(106.0) == 0.5
    count(errors, 10)
    assert errors.share(108.0) == 0.25
    assert errors.share(112.0) == 0.25
    assert errors.share(118.0) == 0.0


def test_two_threads_that_ask_at_the_end_of_a_window_close_it_once() -> None:
    errors = ErrorShare()
    errors.share(100.0)
    count(errors, 10, failures=5)
    other = threading.Thread(target=errors.share, args=(106.0,))

    class Slow(float):
        """A time during whose first use another thread asks, too."""

        def __sub__(self, since_s: Any) -> float:
            other.start()
            # with a lock, it waits for us; without, it has closed the window by now
            other.join(0.2)
            return float(self) - since_s

    errors.share(Slow(106.0))
    other.join()
    assert errors.share(107.0) == 0.5, "the failures of the window before count on"
