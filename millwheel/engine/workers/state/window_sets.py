"""The entries of the sets of windows: parts that are too large for the value of a window are stored
beside it, by number."""

from __future__ import annotations

from collections.abc import Callable

from millwheel.core.aggregates.stored_form import StoredForm
from millwheel.core.formats.store_layout import WINDOW, WINDOW_SET, pack
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import CorruptionError, InvariantError


class ReadSets:
    """The entries of one window, only to be read. ``store_key`` is that of its value."""

    def __init__(self, store_key: bytes, get: Callable[[bytes], bytes | None]) -> None:
        self._prefix = WINDOW_SET + store_key.removeprefix(WINDOW)
        self._get = get

    def read(self, number: int) -> bytes:
        """The entry with this number. Raises CorruptionError when it is missing."""
        data = self._get(self._prefix + pack(number))
        if data is None:
            raise CorruptionError(
                f"entry {number} of the sets of a window is not in the store, but the window"
                " names it"
            )
        return data

    def write(self, data: bytes) -> int:
        raise InvariantError("the sets of windows are only read here")

    def keep(self, number: int) -> None:
        """Nothing is deleted here."""


class WindowSets(ReadSets):
    """The entries of one window, which its owner changes. While its value is encoded, new entries
    are gathered and those that are still needed are noted; then :meth:`write_to` writes the
    difference."""

    def __init__(self, store_key: bytes, get: Callable[[bytes], bytes | None]) -> None:
        super().__init__(store_key, get)
        self._live: set[int] = set()
        self._kept: set[int] = set()
        self._new: dict[int, bytes] = {}

    def read(self, number: int) -> bytes:
        return self._new[number] if number in self._new else super().read(number)

    def write(self, data: bytes) -> int:
        """A new entry; returns its number."""
        number = max(max(self._live, default=0), max(self._new, default=0)) + 1
        self._new[number] = data
        return number

    def keep(self, number: int) -> None:
        """Note that the entry is still needed."""
        self._kept.add(number)

    def loaded(self) -> None:
        """Note that the value has been decoded: it names all entries."""
        self._live, self._kept = self._kept, set()

    def write_to(self, overlay: Overlay) -> list[bytes]:
        """Write the new entries that the encoded value names. Returns the store keys of those that
        it names no more: they are to be deleted once no other value moves out of them."""
        for number in self._kept & self._new.keys():
            overlay.put(self._prefix + pack(number), self._new[number])
        gone = self.keys(self._live - self._kept)
        self._live, self._kept, self._new = self._kept, set(), {}
        return gone

    def keys(self, numbers: set[int] | None = None) -> list[bytes]:
        """The store keys of entries with these numbers (None: of all)."""
        return [
            self._prefix + pack(number)
            for number in sorted(self._live if numbers is None else numbers)
        ]


def read_window(get: Callable[[bytes], bytes | None], store_key: bytes) -> object:
    """The stored value of a window, None when there is none. Raises CorruptionError for damaged
    bytes."""
    data = get(store_key)
    return None if data is None else StoredForm(lambda: ReadSets(store_key, get)).decode(data)
