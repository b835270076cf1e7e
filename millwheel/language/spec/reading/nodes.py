"""The YAML file as a tree in which every value has its line and its path, so that errors can name
them.

ruamel.yaml scans and parses; the tree is built from its events here, without recursion and under
limits, so that no file, however odd, can hang or crash the program. YAML 1.2: ``yes`` and ``on``
are texts. Only plain data: tags are refused, and so are duplicate keys. Anchors and aliases work
within the limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MAX_BYTES = 256_000
"""Size of a pipeline file."""
MAX_DEPTH = 40
"""The deepest nesting of maps and lists."""
MAX_NODES = 20_000
"""The most values in a file, including repetitions by aliases."""


class ForeignLine(int):
    """A line in another file than the pipeline's own: several files may build a Python pipeline."""

    file: str

    def __new__(cls, line: int, file: str) -> ForeignLine:
        instance = super().__new__(cls, line)
        instance.file = file
        return instance


@dataclass(slots=True)
class YamlNode:
    """One value: a scalar, a ``dict[str, Node]`` or a ``list[Node]``.

    ``text`` is a scalar as it was written. ``plain`` means that it had no quotes; ``given``, that a
    ``${parameter}`` replaced it or a part of it. ``path`` is like ``computations.traffic.window``.
    ``repeated`` are the names that a map has twice, with the line of the second.
    """

    value: Any
    line: int
    path: str = ""
    text: str = ""
    plain: bool = False
    given: bool = False
    key_lines: dict[str, int] = field(default_factory=dict)
    repeated: list[tuple[str, int]] = field(default_factory=list)

    @property
    def is_map(self) -> bool:
        """True for a map."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """True for a list."""
        return isinstance(self.value, list)

    @property
    def is_scalar(self) -> bool:
        """True for text, a number, a boolean or nothing."""
        return not isinstance(self.value, (dict, list))

    def child_path(self, name: str | int) -> str:
        """The path of a value in this map or list."""
        step = f"[{name}]" if isinstance(name, int) else f".{name}"
        return f"{self.path}{step}".lstrip(".")

    def data(self) -> Any:
        """The value and all below it as plain Python."""
        if isinstance(self.value, dict):
            return {name: child.data() for name, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.data() for child in self.value]
        return self.value

    def kind(self) -> str:
        """Its kind in words, for errors."""
        if isinstance(self.value, dict):
            return "a map"
        if isinstance(self.value, list):
            return "a list"
        if self.value is None:
            return "nothing"
        return f"{self.value!r:.100}"
