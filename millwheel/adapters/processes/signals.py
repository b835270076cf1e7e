"""Ctrl-C and SIGTERM as a request to stop cleanly. A second Ctrl-C interrupts at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Catches the signals from :meth:`catch` to the end of the ``with`` block; only on the main
    thread, because Python lets no other thread set handlers. ``requested`` is set by the first
    signal."""

    def __init__(self) -> None:
        self.requested = threading.Event()
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
        if self.requested.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested.set()
