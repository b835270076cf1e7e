"""Answers from the windows of an aggregation: those that are open, with their accumulators, and the newest that fired.

The operator that keeps the windows of a key reads them; this module selects the ones that a question means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.core.formats.store_layout import WINDOW, key_prefix, pack, unpack
from millwheel.core.model.keys import Key, KeyHash, key_hash
from millwheel.errors import InvariantError
from millwheel.ports import StoreView
from millwheel.queries.model import Finding, Mode, Query, QueryError
from millwheel.workers.state.window_sets import read_window


@dataclass(frozen=True, slots=True)
class KeptWindow:
    """A window of a key and the results that it has at the moment."""

    start_us: int
    end_us: int
    values: Mapping[str, Any]

    def row(self, query: Query) -> Mapping[str, Any]:
        """The window in a list of them."""
        return {"window_start": self.start_us, "window_end": self.end_us, **query.chosen(self.values)}


class StoredWindows:
    """The state of a key's windows by slot, as window machines read it, from a view of a store."""

    def __init__(self, state: StoreView, key: Key, hashed: KeyHash = key_hash) -> None:
        self._state = state
        self._prefix = key_prefix(WINDOW, key, hashed(key))

    def get(self, slot: Any, default: Any = None) -> Any:
        """The state of one slot."""
        value = read_window(self._state.get, self._prefix + pack(slot))
        return default if value is None else value

    def slots(self) -> list[Any]:
        """All slots of the key."""
        stored: list[Any] = [unpack(store_key[len(self._prefix) :]) for store_key, _ in self._state.scan(self._prefix)]
        return [tuple(slot) if isinstance(slot, list) else slot for slot in stored]

    def __setitem__(self, slot: Any, value: Any) -> None:
        raise InvariantError("windows are only read")

    def __delitem__(self, slot: Any) -> None:
        raise InvariantError("windows are only read")


def of_windows(
    query: Query, windows: Sequence[KeptWindow], latest: KeptWindow | None, keeps_latest: bool, watermark_us: int
) -> Finding:
    """The answer to a question from the open ``windows`` of a key, ordered by end, and the newest that fired. Raises
    QueryError."""
    name = query.computation
    if query.window_us is not None:
        raise QueryError(
            "bad_window",
            f"{name} has windows of its own; ask for the newest result, {name}:KEY, for the window that begins at a "
            f"time, {name}:KEY@MICROS, or for all that are open, MODE open",
        )
    if query.mode is Mode.OPEN:
        return _all(query, windows, watermark_us)
    if query.until_us is not None:
        last = () if latest is None else (latest,)
        found = [window for window in (*windows, *last) if window.start_us == query.until_us]
        if not found:
            raise QueryError("beyond_keep", f"{name} has no window of the key that begins at {query.until_us} any more")
        return _one(query, found[0], watermark_us)
    if not keeps_latest:
        raise QueryError(
            "not_asked",
            f"{name} keeps no results of windows that have fired; write queryable: latest, or ask for those that are "
            "open, MODE open",
        )
    if latest is None:
        raise QueryError("beyond_keep", f"no window of the key has fired in {name} yet")
    return _one(query, latest, watermark_us)


def _one(query: Query, window: KeptWindow, watermark_us: int) -> Finding:
    complete = watermark_us >= window.end_us
    return Finding(query.chosen(window.values), window.start_us, window.end_us, complete)


def _all(query: Query, windows: Sequence[KeptWindow], watermark_us: int) -> Finding:
    rows = [window.row(query) for window in windows]
    if not windows:
        return Finding({"windows": rows})
    ends = [window.end_us for window in windows]
    start_us, end_us = min(window.start_us for window in windows), max(ends)
    return Finding({"windows": rows}, start_us, end_us, watermark_us >= end_us)
