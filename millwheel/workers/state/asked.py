"""The state of a callback, read from a view of its store: nothing here changes anything, and any thread may look."""

from __future__ import annotations

from typing import Any

from millwheel.api import Computation, ListState, ValueState
from millwheel.core.model.keys import Key
from millwheel.ports import StoreView
from millwheel.workers.state.keyed_state import KeyedState
from millwheel.workers.state.overlay import Overlay


def callback_state(kind: type[Computation], store: StoreView, key: Key, now_us: int) -> dict[str, Any]:
    """Every declared state of a key, as a call at ``now_us`` finds it: a value (or its default), a list or a dict."""
    state = KeyedState(object.__new__(kind), Overlay(store), cache_entries=0)
    state.point(key, now_us)
    found: dict[str, Any] = {}
    for name, handle in state.handles.items():
        declared = _declared(kind, name)
        if isinstance(declared, ValueState):
            found[name] = handle.get()
        elif isinstance(declared, ListState):
            found[name] = list(handle)
        else:
            found[name] = dict(handle.items())
    return found


def _declared(kind: type, name: str) -> Any:
    """The declaration of a state, wherever among the bases it stands."""
    return next(vars(base)[name] for base in kind.__mro__ if name in vars(base))
