"""What the tests of real processes wait for, and for two minutes at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.slow.runs import Run


def until(so: Callable[[], Any], run: Run | None = None, within_s: float = 120.0) -> Any:
    """What ``so`` returns once that is true. A ``run`` must not end before."""
    end_s = time.monotonic() + within_s
    while not (value := so()):
        said = (run.folder / "said.txt").read_text() if run is not None else ""
        assert run is None or run.process.poll() is None, f"the run has ended: {said}"
        assert time.monotonic() < end_s, f"it did not happen in time {said}"
        time.sleep(0.05)
    return value


def until_without(error: type[Exception], act: Callable[[], Any], within_s: float = 120.0) -> Any:
    """What ``act`` returns once it raises no ``error``, as the runtime tries again."""
    end_s = time.monotonic() + within_s
    while True:
        try:
            return act()
        except error:
            assert time.monotonic() < end_s
            time.sleep(0.05)
