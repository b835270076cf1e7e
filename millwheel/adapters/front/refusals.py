"""Lines of a log about refused visitors, of which a stranger can cause any number."""

from __future__ import annotations

import logging
import threading
from time import monotonic

_PAUSE_S = 1.0  # between two lines: thousands of refusals must not fill a disk


class RefusalLog:
    """Writes the first refusal, and then at most one in each second, with the number of those that were left out."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._again_s = 0.0
        self._left_out = 0

    def tell(self, text: str, *values: object) -> None:
        """Write a line, or count it (any thread)."""
        with self._lock:
            now_s = monotonic()
            if now_s < self._again_s:
                self._left_out += 1
                return
            self._again_s = now_s + _PAUSE_S
            left_out, self._left_out = self._left_out, 0
        more = f" {left_out} others were refused since the last line." if left_out else ""
        self._log.warning(text + more, *values)
