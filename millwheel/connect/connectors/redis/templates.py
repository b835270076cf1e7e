"""Names of Redis keys with fields of records in them: ``ctr:{ad_id}``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millwheel.connect.own_functions import expression_of
from millwheel.errors import RecordError

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_FIELD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Template:
    """Text with expressions in braces; ``{{`` and ``}}`` are braces. ``expressions`` are those of
    the text, in their order."""

    text: str
    expressions: tuple[str, ...]
    _literals: tuple[str, ...]
    _reads: tuple[Callable[[Any], Any], ...]

    def of(self, value: Any) -> str:
        """The text for a record's value. Raises RecordError where an expression has no text."""
        return self.filled([read(value) for read in self._reads])

    def filled(self, parts: list[Any] | tuple[Any, ...]) -> str:
        """The text with these values instead of its expressions."""
        texts = [key_text(part, name) for part, name in zip(parts, self.expressions, strict=True)]
        return "".join(
            piece for pair in zip(self._literals, [*texts, ""], strict=True) for piece in pair
        )

    def fields(self) -> tuple[str, ...]:
        """The expressions, if each is a field's name; else none."""
        return self.expressions if all(map(_FIELD.fullmatch, self.expressions)) else ()


def template(text: str) -> Template:
    """Raises ValueError for braces that do not match, and for invalid expressions."""
    literals, expressions, end, literal = [], [], 0, ""
    for part in _PART.finditer(text):
        literal += text[end : part.start()]
        end = part.end()
        if part.group(1) is not None:
            literals.append(literal)
            expressions.append(part.group(1).strip())
            literal = ""
        elif len(part.group()) == 1:
            raise ValueError(
                f"{text!r} has a single {part.group()!r}; write ctr:{{ad_id}}, or"
                f" {part.group() * 2}"
            )
        else:
            literal += part.group()[0]
    reads = tuple(expression_of(each).evaluate for each in expressions)
    return Template(text, tuple(expressions), (*literals, literal + text[end:]), reads)


def key_text(value: Any, name: str) -> str:
    """A part of a key as text. Raises RecordError for a value without a plain text form."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    raise RecordError(
        f"{name} is {'null' if value is None else 'a ' + type(value).__name__}, which is not part"
        " of a key"
    )
