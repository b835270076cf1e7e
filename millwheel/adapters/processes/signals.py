"""Ctrl-C and SIGTERM as a request to stop cleanly. A second Ctrl-C interrupts at once.

A handler runs between any two instructions of the main thread, which may hold the lock of an event
or a queue just then. So no handler here takes a lock: its request is carried out by a thread.
"""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def stop_on_signals(stop: Callable[[], object]) -> None:
    """Let Ctrl-C and SIGTERM call ``stop`` from here on, each on a thread of its own. Only on the
    main thread."""
    for number in _SIGNALS:
        signal.signal(number, lambda *_: _on_a_thread(stop))


def _on_a_thread(action: Callable[[], object]) -> None:
    """Call it soon. ``threading.Thread`` would take a lock of its module and wait for its start."""
    _thread.start_new_thread(action, ())


class StopSignals:
    """Catches the signals from :meth:`catch` to the end of the ``with`` block; only on the main
    thread, because Python lets no other thread set handlers. ``requested`` is set by the first
    signal."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._caught = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        self.catch()
        return self

    def catch(self) -> None:
        """Set our handlers; again after a library (Spark) has set its own."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            self._before.setdefault(number, signal.getsignal(number))
            signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._caught = True
        _on_a_thread(self.requested.set)
