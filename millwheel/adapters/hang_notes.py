"""Notes about callbacks that did not return, in the root: ``hangs/COMPUTATION/*.json``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import uuid4

from millwheel.adapters.object_space import ObjectSpace


class HangNotes:
    """Contents under names that are never used twice. For any thread."""

    def __init__(self, space: ObjectSpace, name: Callable[[], str] = lambda: uuid4().hex) -> None:
        self._space = space
        self._name = name

    def write(self, node: str, data: bytes) -> None:
        """One more note about a computation; durable."""
        folder = self._folder(node)
        self._space.prepare(folder)
        self._space.create(f"{folder}/{self._name()}.json", data)

    def read(self, node: str) -> Mapping[str, bytes]:
        """The notes about a computation by name."""
        folder = self._folder(node)
        found: dict[str, bytes] = {}
        for name in sorted(self._space.names(folder)):
            if name.endswith(".json"):
                try:
                    found[name] = self._space.get(f"{folder}/{name}")
                except FileNotFoundError:
                    continue
        return found

    def remove(self, node: str, name: str) -> None:
        """Nothing happens when it is not there."""
        self._space.delete(f"{self._folder(node)}/{name}")

    def _folder(self, node: str) -> str:
        return f"{self._space.root}/hangs/{node}"
