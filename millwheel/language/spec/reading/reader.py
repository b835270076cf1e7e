"""Typed access to nodes: every method returns a value of its type, or notes a problem and returns a
default.

A problem states the error and the correction. Nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from millwheel.connect.python_objects import OBJECT_NAME
from millwheel.core.expressions.language import BUILT_IN, Language
from millwheel.core.model.times import duration_us
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import Problems, did_you_mean, unknown

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of pipelines, streams and computations: they become names of folders and of znodes."""
_EXPRESSION = re.compile(r"\w+\(.*\)|.*\S\s+[-+*/%]\s+\S.*|\w+[*/]\w+")
MAX_DURATION_US = 100 * 366 * 86_400_000_000  # Fixed: a century; longer ones are mistakes

T = TypeVar("T")


def is_expression(text: str) -> bool:
    """Whether a text in the place of a field's name computes something: ``lower(k)``, ``ts *
    1000``. A name with a hyphen or a blank does not."""
    return _EXPRESSION.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class NodeReader:
    """Reads nodes of one file, and collects their ``problems``. Its expressions are of the
    ``language``."""

    problems: Problems
    language: Language = BUILT_IN

    def bad(self, node: YamlNode, text: str) -> None:
        """Note a problem at a node."""
        self.problems.add(node.line, node.path, text)

    def missing(self, node: YamlNode, field: str, text: str) -> None:
        """Note that a map has no ``field``, unless a misspelt one was already noted."""
        there = (
            [name for name in node.value if name != field] if isinstance(node.value, dict) else []
        )
        if not get_close_matches(field, there, 1, 0.75):
            self.problems.add(node.line, node.child_path(field), f"is missing; {text}")

    def where(self, node: YamlNode) -> str:
        """File and line of a node, for later errors."""
        return self.problems.at(node.line)

    # --- maps and lists ---------------------------------------------------------------------------

    def entries(self, node: YamlNode | None, example: str) -> dict[str, YamlNode]:
        """A map with names of the user's choice; an absent one is empty."""
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict):
            self.bad(node, f"must be a map, not {node.kind()}; write for example {example}")
            return {}
        return node.value

    def fields(
        self, node: YamlNode | None, names: Sequence[str], example: str
    ) -> dict[str, YamlNode]:
        """A map with some of the ``names`` fields. Unknown fields are problems; empty ones count as
        absent."""
        entries = self.entries(node, example)
        for name, child in entries.items():
            if name not in names:
                self.problems.add(
                    child.line, child.path, unknown("field", name, names, "Fields here")
                )
        return {
            name: child
            for name, child in entries.items()
            if name in names and child.value is not None
        }

    def items(self, node: YamlNode) -> list[YamlNode]:
        """A list, or one scalar as a list of itself."""
        return node.value if isinstance(node.value, list) else [node]

    # --- scalars ----------------------------------------------------------------------------------

    def text(self, node: YamlNode | None, example: str, default: str = "") -> str:
        """Text. Numbers and booleans without quotes are refused, unless they come from a
        parameter."""
        if node is None:
            return default
        if isinstance(node.value, str) or (node.given and node.is_scalar):
            if not node.text:
                self.bad(node, f"must not be empty; write for example {example}")
            return node.text
        self.bad(node, f"must be text, not {node.kind()}; write for example {example}")
        return default

    def number(
        self, node: YamlNode | None, default: int | None, least: int, most: int
    ) -> int | None:
        """A whole number within bounds."""
        if node is None:
            return default
        value = node.value
        if type(value) is not int or not least <= value <= most:
            self.bad(node, f"must be a whole number from {least} to {most}, not {node.kind()}")
            return default
        return value

    def flag(self, node: YamlNode | None, default: bool = False) -> bool:
        """true or false."""
        if node is None:
            return default
        if not isinstance(node.value, bool):
            self.bad(node, f"must be true or false, not {node.kind()}")
            return default
        return node.value

    def duration(self, node: YamlNode | None, default: int, least: int = 0) -> int:
        """A duration in µs. A number without a unit is refused, because it would be ambiguous."""
        if node is None:
            return default
        try:
            if not isinstance(node.value, str):
                raise ValueError(
                    f"must be a duration, not {node.kind()}; write a number and a unit, such as"
                    " 500ms, 10s, 2m or 7d"
                )
            duration = duration_us(node.value)
            if not least <= duration <= MAX_DURATION_US:
                raise ValueError(f"{node.value!r} must lie between {least}us and 100 years")
        except (ValueError, OverflowError) as ex:
            self.bad(node, str(ex))
            return default
        return duration

    def choice(self, node: YamlNode | None, choices: Iterable[str], default: str) -> str:
        """One of a few words."""
        if node is None:
            return default
        names = list(choices)
        if node.is_scalar and node.text in names:
            return node.text
        meant = did_you_mean(node.text, names) if node.is_scalar else ""
        self.bad(node, f"must be one of {', '.join(names)}, not {node.kind()}{meant}")
        return default

    def name(self, node: YamlNode, what: str) -> str:
        """The name of a stream or a pipeline; "" (and a problem) if it is not a valid one."""
        text = self.text(node, f"my_{what}")
        return text if text and self.check_name(node, text, what) else ""

    def check_name(self, node: YamlNode, text: str, what: str) -> bool:
        """True if ``text`` can be the name of a ``what``; otherwise notes a problem."""
        if NAME.fullmatch(text):
            return True
        suggestion = re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:64].strip("_") or f"my_{what}"
        self.bad(
            node,
            f"{text[:80]!r} cannot be the name of a {what}: names have 1 to 64 letters (a-z),"
            f" digits, _ or -; write for example {suggestion}",
        )
        return False

    def object_name(self, node: YamlNode | None, example: str) -> str:
        """``module:name``; "" (and a problem) for anything else."""
        text = self.text(node, example)
        if text and not OBJECT_NAME.fullmatch(text):
            assert node is not None
            self.bad(
                node,
                f"{text[:80]!r} names no Python object; write module:name, for example {example}",
            )
            return ""
        return text

    def expression(self, node: YamlNode | None, example: str) -> str:
        """The text of an expression that compiles. Numbers and booleans are expressions, too."""
        if node is None:
            return ""
        text = (
            node.text
            if node.is_scalar and node.value is not None and not isinstance(node.value, str)
            else self.text(node, example)
        )
        return (
            text
            if text and self.attempt(node, lambda: self.language.compile(text)) is not None
            else ""
        )

    def attempt(self, node: YamlNode, make: Callable[[], T]) -> T | None:
        """The result of ``make``. If it raises ValueError (a sentence), None, and a problem at
        ``node``."""
        try:
            return make()
        except (ValueError, TypeError, OverflowError) as ex:
            self.bad(node, str(ex) or type(ex).__name__)
            return None
