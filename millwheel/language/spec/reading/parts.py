"""Parts of the file whose fields are declared once: the reader, with its sentences, and the JSON
Schema follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from millwheel.core.model.limits import size_bytes, size_text
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader

FAILED: Any = object()
"""The result of a kind for a value that it cannot read; the problem has been noted."""
MERGED = "*"
"""The attribute of a field whose value is a map of several attributes."""


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number within bounds."""

    least: int
    most: int

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The number."""
        return reader.number(node, FAILED, self.least, self.most)


@dataclass(frozen=True, slots=True)
class ByteSize:
    """A number of bytes within bounds. One without a unit is refused, because it would be
    ambiguous."""

    least: int
    most: int

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The bytes."""
        return reader.attempt(node, lambda: self._bytes(node)) or FAILED

    def _bytes(self, node: YamlNode) -> int:
        if not isinstance(node.value, str):
            raise ValueError(
                f"must be a size, not {node.kind()}; write a number and a unit, such as 64kB or"
                " 16MiB"
            )
        size = size_bytes(node.value)
        if not self.least <= size <= self.most:
            raise ValueError(
                f"{node.value!r} must lie between {size_text(self.least)} and"
                f" {size_text(self.most)}"
            )
        return size


@dataclass(frozen=True, slots=True)
class Duration:
    """µs. With ``never`` it may also be "never", which is None."""

    least_us: int = 0
    never: bool = False

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The µs."""
        if self.never and node.text == "never":
            return None
        return reader.duration(node, FAILED, self.least_us)


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The flag."""
        return reader.flag(node, FAILED)


@dataclass(frozen=True, slots=True)
class Share:
    """A number from 0 to 1."""

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The share."""
        share = node.value
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            reader.bad(
                node,
                "must be a share from 0 to 1, such as 0.001 for one of a thousand, not"
                f" {node.kind()}",
            )
            return FAILED
        return float(share)


@dataclass(frozen=True, slots=True)
class Percent:
    """A share from 0% to below 100%, as a text. ``otherwise`` ends the sentence about another."""

    otherwise: str

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The share, from 0 to 1."""
        digits = node.text[:-1].strip() if node.is_scalar and node.text.endswith("%") else ""
        try:
            share = float(digits) / 100
        except ValueError:
            share = -1.0
        if not 0 <= share < 1:
            text = f"must be a share from 0% to below 100%, such as 10%, not {node.kind()}"
            reader.bad(node, f"{text}; {self.otherwise}")
            return FAILED
        return share


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words; ``made`` turns it into the value. ``refused`` has a sentence for a word
    that one may expect."""

    words: tuple[str, ...]
    made: Callable[[str], Any] = str
    refused: Mapping[str, str] = field(default_factory=dict)

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The value of the word."""
        if node.is_scalar and node.text in self.refused:
            reader.bad(node, self.refused[node.text])
            return FAILED
        word = reader.choice(node, self.words, "")
        return self.made(word) if word else FAILED


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is not empty. The schema, not the reader, holds it to a ``pattern``."""

    example: str
    pattern: str = ""

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The text."""
        return reader.text(node, self.example) or FAILED


@dataclass(frozen=True, slots=True)
class ObjectName:
    """``module:name``."""

    example: str

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The name."""
        return reader.object_name(node, self.example) or FAILED


@dataclass(frozen=True, slots=True)
class ExpressionText:
    """An expression that compiles."""

    example: str

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """Its text."""
        return reader.expression(node, self.example) or FAILED


@dataclass(frozen=True, slots=True)
class NameText:
    """The name of a stream or a pipeline."""

    what: str

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The name."""
        return reader.name(node, self.what) or FAILED


@dataclass(frozen=True, slots=True)
class Anything:
    """Plain data."""

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The data."""
        return node.data()


@dataclass(frozen=True, slots=True)
class Items:
    """One, or a list of them."""

    each: Kind

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """All of them, as a tuple."""
        items = tuple(self.each.read(reader, item) for item in reader.items(node))
        return FAILED if FAILED in items else items


@dataclass(frozen=True, slots=True)
class Entries:
    """A map with names of the user's choice; ``named``: they are names of the pipeline."""

    each: Kind
    example: str
    named: bool = False

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The map."""
        entries = reader.entries(node, self.example)
        values = {name: self.each.read(reader, child) for name, child in entries.items()}
        return FAILED if FAILED in values.values() else values


@dataclass(frozen=True, slots=True)
class Short:
    """A map that is also written as the value of one of its fields alone."""

    name: str
    part: FilePart

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The attributes."""
        if node.is_map:
            return self.part.read(reader, node)
        return self.part.values(reader, {self.name: node})


@dataclass(frozen=True, slots=True)
class Own:
    """A value with a reader of its own, ``made``, or one that the reader of its part reads.
    ``shapes`` are the forms in which it may be written, for the schema: kinds, names of its
    definitions, and None for nothing."""

    shapes: tuple[Kind | str | None, ...]
    made: Callable[[NodeReader, YamlNode], Any] | None = None

    def read(self, reader: NodeReader, node: YamlNode) -> Any:
        """The result of its reader."""
        assert self.made is not None
        return self.made(reader, node)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the file. Its value becomes the ``attribute`` of the part's value; several of them
    if it is MERGED. Without one the part's reader reads it itself. ``needed`` ends the sentence
    about a map without the field; "": it may be absent.

    ``text`` is one sentence, as Markdown of a page below docs/; tables there and the JSON Schema
    show it. ``default`` are words for the default, where no value of ``defaults`` is one."""

    attribute: str
    kind: Kind
    text: str = ""
    needed: str = ""
    default: str = ""

    def value(self, reader: NodeReader, node: YamlNode | None, default: Any) -> Any:
        """The value alone; ``default`` if there is none, or it cannot be read."""
        value = default if node is None else self.kind.read(reader, node)
        return default if value is FAILED else value


@dataclass(frozen=True, slots=True)
class FilePart:
    """A map of the file. A field that is absent has the value of its attribute in ``defaults``."""

    example: str
    fields: Mapping[str, Field]
    defaults: Any = None

    def read(self, reader: NodeReader, node: YamlNode | None) -> dict[str, Any]:
        """The attributes that the map gives. Unknown and missing fields are problems."""
        return self.values(reader, self.nodes(reader, node))

    def nodes(self, reader: NodeReader, node: YamlNode | None) -> dict[str, YamlNode]:
        """The nodes of the fields that are there, by name."""
        nodes = reader.fields(node, [*self.fields], self.example)
        if node is not None and node.is_map:
            for name, each in self.fields.items():
                if each.needed and name not in nodes:
                    reader.missing(node, name, each.needed)
        return nodes

    def values(self, reader: NodeReader, nodes: Mapping[str, YamlNode]) -> dict[str, Any]:
        """The attributes that nodes give, also those of a map that has other fields as well. A
        value that cannot be read is left out."""
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for name, each in self.fields.items():
            if name not in nodes or not each.attribute:
                continue
            value = each.kind.read(reader, nodes[name])
            if value is not FAILED and each.attribute == MERGED:
                merged.update(value)
            elif value is not FAILED:
                own[each.attribute] = value
        return {**merged, **own}


Kind: TypeAlias = (
    Number
    | ByteSize
    | Duration
    | Flag
    | Share
    | Percent
    | Choice
    | Text
    | ObjectName
    | ExpressionText
    | NameText
    | Anything
    | Items
    | Entries
    | Short
    | Own
    | FilePart
)
