"""The windows of a key as queries see them, and its newest result: one entry, written with the
commit of its firing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from millwheel.adapters.ports import StoreView
from millwheel.core.formats.store_layout import RESULT, WINDOW, key_prefix, pack, unpack
from millwheel.core.machines.aligned_windows import AlignedMachine
from millwheel.core.machines.sessions import MergingMachine
from millwheel.core.model.damage import checked
from millwheel.core.model.keys import Key, KeyHash, key_hash
from millwheel.core.model.times import LAST_TIME, MIN_TIME
from millwheel.core.pipeline.skew import hash_of_keys
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.windows.contract import Machine, Slot
from millwheel.core.windows.panes import Pane
from millwheel.core.windows.windows import Custom, OfInput, Window
from millwheel.engine.queries.model import Finding, Mode, Query, QueryError
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.window_sets import read_window
from millwheel.errors import InvariantError, RecordError


@dataclass(frozen=True, slots=True)
class KeptWindow:
    """A window of a key and the results that it has at the moment."""

    start_us: int
    end_us: int
    values: Mapping[str, Any]

    def row(self, query: Query) -> Mapping[str, Any]:
        """The window in a list of them."""
        return {
            "window_start": self.start_us,
            "window_end": self.end_us,
            **query.chosen(self.values),
        }


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
        stored: list[Any] = [
            unpack(store_key[len(self._prefix) :])
            for store_key, _ in self._state.scan(self._prefix)
        ]
        return [tuple(slot) if isinstance(slot, list) else slot for slot in stored]

    def __setitem__(self, slot: Any, value: Any) -> None:
        raise InvariantError("windows are only read")

    def __delitem__(self, slot: Any) -> None:
        raise InvariantError("windows are only read")


def of_windows(
    query: Query,
    windows: Sequence[KeptWindow],
    latest: KeptWindow | None,
    keeps_latest: bool,
    watermark_us: int,
) -> Finding:
    """The answer to a question from the open ``windows`` of a key, ordered by end, and the newest
    that fired. Raises QueryError."""
    name = query.computation
    if query.window_us is not None:
        raise QueryError(
            "bad_window",
            f"{name} has windows of its own; ask for the newest result, {name}:KEY, for the window"
            f" that begins at a time, {name}:KEY@MICROS, or for all that are open, MODE open",
        )
    if query.mode is Mode.OPEN:
        return _all(query, windows, watermark_us)
    if query.until_us is not None:
        last = () if latest is None else (latest,)
        matches = [window for window in (*windows, *last) if window.start_us == query.until_us]
        if not matches:
            raise QueryError(
                "beyond_keep",
                f"{name} has no window of the key that begins at {query.until_us} any more",
            )
        return _one(query, matches[0], watermark_us)
    if not keeps_latest:
        raise QueryError(
            "not_asked",
            f"{name} keeps no results of windows that have fired; write queryable: latest, or ask"
            " for those that are open, MODE open",
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


class _Stored(msgspec.Struct, array_like=True):
    """A result, and the window that it is of."""

    start_us: int
    end_us: int
    values: Any


_encode = msgspec.msgpack.Encoder().encode
_decode = checked(msgspec.msgpack.Decoder(_Stored).decode, "the newest result of a window")


class WindowResults:
    """The newest results of the keys of one shard."""

    def __init__(self, overlay: Overlay, most: int, hashed: KeyHash = key_hash) -> None:
        self._hashed = hashed
        self._overlay = overlay
        self._most = most

    def fired(self, pane: Pane, values: Mapping[str, Any]) -> None:
        """Keep a result, unless that of a later window is kept. A result that was taken back is
        forgotten."""
        store_key = _store_key(pane.key, self._hashed)
        stored = self._overlay.get(store_key)
        start_us, end_us = pane.window
        if stored is not None:
            newest = _decode(stored)
            if pane.retraction:
                if (newest.start_us, newest.end_us) == (start_us, end_us):
                    self._overlay.delete(store_key)
                return
            if (newest.end_us, newest.start_us) > (end_us, start_us):
                return
        elif pane.retraction:
            return
        data = _encode(_Stored(start_us, end_us, values))
        if len(data) <= self._most:
            self._overlay.put(store_key, data)
        elif stored is not None:  # an older one would pass for the newest
            self._overlay.delete(store_key)


def newest_result(state: StoreView, key: Key, hashed: KeyHash = key_hash) -> KeptWindow | None:
    """The newest result of a key; None when no window has fired."""
    stored = state.get(_store_key(key, hashed))
    if stored is None:
        return None
    newest = _decode(stored)
    return KeptWindow(newest.start_us, newest.end_us, newest.values)


def _store_key(key: Key, hashed: KeyHash) -> bytes:
    return key_prefix(RESULT, key, hashed(key))


@dataclass(frozen=True, slots=True)
class WindowAnswers:
    """The answers for one computation, from a view of its store. ``finish`` makes the values of a
    window final."""

    spec: ComputationSpec
    machine: Machine
    finish: Callable[[dict[str, Any]], dict[str, Any]]

    def answer(
        self, query: Query, more: Sequence[tuple[Window, Any]], state: StoreView, watermark_us: int
    ) -> Finding:
        """``more`` are open windows that columns hold, and their results: for windows that rows
        have, too, these are the results before a late record. Raises QueryError."""
        machine = self.machine
        if not self.spec.aggregates or not isinstance(machine, AlignedMachine | MergingMachine):
            raise QueryError(
                "not_asked", f"windows of {query.computation} cannot be asked: {_why(self.spec)}"
            )
        hashed = hash_of_keys(self.spec)
        stored = StoredWindows(state, query.key, hashed)
        columns = [each for each in more if stored.get(tuple(each[0])) is None]
        results = [*columns, *machine.open_results(stored, _slots(query, stored, machine))]
        windows = [KeptWindow(*window, self.finish(dict(result))) for window, result in results]
        windows.sort(key=lambda window: (window.end_us, window.start_us))
        keeps_latest = self.spec.queryable
        latest = newest_result(state, query.key, hashed) if keeps_latest else None
        return of_windows(query, windows, latest, keeps_latest, watermark_us)


def _slots(
    query: Query, stored: StoredWindows, machine: AlignedMachine | MergingMachine
) -> Sequence[Slot]:
    """The slots that an answer needs. A scan is dearer than a get: it first writes the pending
    changes."""
    if isinstance(machine, MergingMachine):
        return ()  # it has an index
    if query.mode is Mode.OPEN:
        return stored.slots()
    window = machine.windowing.window
    if query.until_us is None:
        return ()
    if isinstance(window, Custom | OfInput):  # not found by a time
        return stored.slots()
    if not MIN_TIME <= query.until_us <= LAST_TIME:
        raise QueryError(
            "bad_window", f"{query.until_us} lies outside of the times that records can have"
        )
    try:
        windows = window.assign(query.until_us)
    except RecordError as ex:  # a year that the time zone does not cover
        raise QueryError("bad_window", str(ex)) from None
    return [(each.start, each.end) for each in windows if each.start == query.until_us]


def _why(spec: ComputationSpec) -> str:
    return (
        "they share what they hold" if spec.aggregates else "they hold records, and no aggregates"
    )
