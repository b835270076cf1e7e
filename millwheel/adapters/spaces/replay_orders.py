"""Replays of dead letters in the root: ``replay/00000001.request``, ``.order`` and ``.done``."""

from __future__ import annotations

from millwheel.adapters.spaces.files import explaining
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.core.pipeline.replays import ReplayOrder, Request, decode, encode

_REQUEST, _ORDER, _DONE = ".request", ".order", ".done"


class ReplayOrders:
    """All replays of a root, by number. For any thread. Raises UnavailableError or SetupError when
    the root does not do what it is asked, CorruptionError for damage."""

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
        """The orders of which all has been applied."""
        return frozenset(self._numbers(_DONE))

    def finish(self, number: int) -> None:
        """All of an order has been applied."""
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
