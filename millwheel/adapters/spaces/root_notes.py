"""Notes that the processes of a run leave each other in the root, each under a name that is created
once: replays of dead letters, named queries, callbacks that did not return.

    replay/00000001.request, .order, .done   a replay that is requested, bound to letters, applied
    queries/00000001.json                    the named queries that were set while the pipeline runs
    hangs/COMPUTATION/NAME.json              a callback that did not return
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import uuid4

from millwheel.adapters.spaces.files import explaining
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.core.pipeline.query_changes import QueryChanges, QueryRow
from millwheel.core.pipeline.replays import ReplayOrder, Request, decode, encode

_REQUEST, _ORDER, _DONE = ".request", ".order", ".done"


class ReplayOrders:
    """All replays of a root, by number. For any thread. Raises UnavailableError or SetupError when
    the root refuses a request, CorruptionError for damage."""

    def __init__(self, space: ObjectSpace) -> None:
        self._space = space
        self._folder = f"{space.root}/replay"

    def request(self, number: int, request: Request) -> bool:
        """Ask for a replay; False when the number is taken."""
        return self._create(number, _REQUEST, encode(request))

    def requests(self) -> dict[int, Request]:
        """All requests so far."""
        return {
            number: decode(self._get(number, _REQUEST), Request)
            for number in self._numbers(_REQUEST)
        }

    def unbound(self) -> dict[int, Request]:
        """The requests that have not become orders."""
        bound = self._numbers(_ORDER)
        return {
            n: decode(self._get(n, _REQUEST), Request)
            for n in self._numbers(_REQUEST)
            if n not in bound
        }

    def bind(self, number: int, order: ReplayOrder) -> None:
        """Store the order for a request. The first one counts."""
        self._create(number, _ORDER, encode(order))

    def undone(self, known_numbers: frozenset[int] = frozenset()) -> dict[int, ReplayOrder]:
        """The orders that are not done, except ``known_numbers``."""
        done = self._numbers(_DONE)
        numbers = [
            number
            for number in self._numbers(_ORDER)
            if number not in done and number not in known_numbers
        ]
        return {number: decode(self._get(number, _ORDER), ReplayOrder) for number in numbers}

    def done(self) -> frozenset[int]:
        """The orders that have been applied completely."""
        return frozenset(self._numbers(_DONE))

    def finish(self, number: int) -> None:
        """Mark an order as applied completely."""
        self._create(number, _DONE, b"done")

    def pending(self) -> bool:
        """Whether a request is not yet done."""
        return bool(set(self._numbers(_REQUEST)) - set(self._numbers(_DONE)))

    def _numbers(self, kind: str) -> list[int]:
        with explaining(f"read the replays in {self._folder}"):
            names = self._space.names(self._folder)
        return sorted(
            int(name.removesuffix(kind)) for name in names if name.endswith(kind) and name[0] != "."
        )

    def _get(self, number: int, kind: str) -> bytes:
        with explaining(f"read the replay {number} in {self._folder}"):
            return self._space.get(self._key(number, kind))

    def _create(self, number: int, kind: str, data: bytes) -> bool:
        with explaining(f"write the replay {number} into {self._folder}"):
            self._space.prepare(self._folder)
            return self._space.create(self._key(number, kind), data)

    def _key(self, number: int, kind: str) -> str:
        return f"{self._folder}/{number:08d}{kind}"


_END = ".json"
_KEPT = 3
"""Older tables that stay: a reader that has just listed them still finds one."""


class QueryTable:
    """For any thread. Raises UnavailableError or SetupError when the root refuses a request,
    CorruptionError for damage."""

    def __init__(self, space: ObjectSpace) -> None:
        self._space = space
        self._folder = f"{space.root}/queries"

    def read(self, latest: QueryChanges | None = None) -> QueryChanges:
        """The newest table; ``latest`` itself if it is that."""
        with explaining(f"read the named queries in {self._folder}"):
            number = max(self._numbers(), default=0)
            if latest is not None and latest.number >= number:
                return latest
            return (
                QueryChanges.decode(self._space.get(self._key(number)))
                if number
                else QueryChanges()
            )

    def change(self, rows: Sequence[QueryRow]) -> QueryChanges:
        """Set the rows, even while others do; the table that has them."""
        while True:
            changes = self.read().changed(rows, uuid4().hex)
            with explaining(f"write the named queries in {self._folder}"):
                self._space.prepare(self._folder)
                if self._space.create(self._key(changes.number), changes.encode()):
                    numbers = self._numbers()
                    # So far behind the newest, the number was free because its table is deleted:
                    # ours would not be read.
                    if max(numbers) > changes.number + _KEPT:
                        continue
                    for number in numbers:
                        if number < changes.number - _KEPT:
                            self._space.delete(self._key(number))
                    return changes

    def _numbers(self) -> list[int]:
        names = self._space.names(self._folder)
        return [
            int(stem)
            for name in names
            if name.endswith(_END) and (stem := name.removesuffix(_END)).isdecimal()
        ]

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:08d}{_END}"


class HangNotes:
    """Contents under names that are never used twice. For any thread. Raises UnavailableError or
    SetupError when the root refuses a request."""

    def __init__(self, space: ObjectSpace, name: Callable[[], str] = lambda: uuid4().hex) -> None:
        self._space = space
        self._name = name

    def write(self, node: str, data: bytes) -> None:
        """One more note about a computation; durable."""
        folder = self._folder(node)
        with explaining(f"write a note into {folder}"):
            self._space.prepare(folder)
            self._space.create(f"{folder}/{self._name()}.json", data)

    def read(self, node: str) -> Mapping[str, bytes]:
        """The notes about a computation by name."""
        folder = self._folder(node)
        with explaining(f"read the notes in {folder}"):
            names = [name for name in sorted(self._space.names(folder)) if name.endswith(".json")]
            notes = {name: self._content(f"{folder}/{name}") for name in names}
        return {name: data for name, data in notes.items() if data is not None}

    def _content(self, key: str) -> bytes | None:
        """None if the note was removed meanwhile."""
        try:
            return self._space.get(key)
        except FileNotFoundError:
            return None

    def remove(self, node: str, name: str) -> None:
        """Remove a note, if it exists."""
        folder = self._folder(node)
        with explaining(f"remove the note {name} in {folder}"):
            self._space.delete(f"{folder}/{name}")

    def clear(self, nodes: Iterable[str]) -> None:
        """Remove the notes about these computations, when no work is left to which they apply."""
        for node in nodes:
            for name in self.read(node):
                self.remove(node, name)

    def _folder(self, node: str) -> str:
        return f"{self._space.root}/hangs/{node}"
