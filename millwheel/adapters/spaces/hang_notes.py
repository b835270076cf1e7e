"""Notes about callbacks that did not return, in the root: ``hangs/COMPUTATION/*.json``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import uuid4

from millwheel.adapters.spaces.files import explaining
from millwheel.adapters.spaces.object_space import ObjectSpace


class HangNotes:
    """Contents under names that are never used twice. For any thread. Raises UnavailableError or
    SetupError when the root does not do what it is asked."""

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
        """Nothing happens when it is not there."""
        folder = self._folder(node)
        with explaining(f"remove the note {name} in {folder}"):
            self._space.delete(f"{folder}/{name}")

    def clear(self, nodes: Iterable[str]) -> None:
        """Remove the notes about these computations. No work is left to which they could apply."""
        for node in nodes:
            for name in self.read(node):
                self.remove(node, name)

    def _folder(self, node: str) -> str:
        return f"{self._space.root}/hangs/{node}"
