from __future__ import annotations

import inspect
from typing import get_args

from millwheel.engine.workers import events


def test_the_loop_knows_every_event() -> None:
    defined = {
        kind
        for _, kind in inspect.getmembers(events, inspect.isclass)
        if kind.__module__ == events.__name__
    }
    assert set(get_args(events.Event)) == defined
