from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from millwheel.adapters.processes.signals import StopSignals

LOCKED = """
import os, signal, sys, threading
from millwheel.adapters.processes.signals import StopSignals, stop_on_signals

class Owned(threading.Event):
    def in_the_middle_of_a_wait(self, number):
        with self._cond:
            os.kill(os.getpid(), number)
            for _ in range(1_000):
                pass  # the handler runs here

event = Owned()
if sys.argv[1] == "service":
    stop_on_signals(event.set)
else:
    signals = StopSignals()
    signals.requested = event
    signals.catch()
event.in_the_middle_of_a_wait(signal.SIGINT)
assert event.wait(5)
event.in_the_middle_of_a_wait(signal.SIGTERM)
print("goes on")
"""
"""A signal comes while the main thread has the lock of the event that the handler sets."""


def test_signals_are_a_request_to_stop_and_a_second_interrupt_is_obeyed_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.requested.wait(5)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_they_are_taken_back_from_a_library_and_given_back_at_the_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as signals:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signals.catch()
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.requested.wait(5)
    assert signal.getsignal(signal.SIGINT) is before


def test_on_another_thread_nothing_is_caught_and_nothing_breaks() -> None:
    def enter() -> None:
        with StopSignals() as signals:
            assert not signals.requested.is_set()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()


@pytest.mark.parametrize("process", ["driver", "service"])
def test_a_signal_in_the_middle_of_a_wait_does_not_stop_the_process_for_good(process: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOCKED, process], capture_output=True, text=True, timeout=20
    )
    assert ended.stdout == "goes on\n", ended.stderr
