from __future__ import annotations

import os
import signal
import threading

import pytest

from millwheel.adapters.processes.signals import StopSignals


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
