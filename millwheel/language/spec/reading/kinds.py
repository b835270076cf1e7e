"""``{kind: {options}}``: how sources and sinks are named. The options themselves are checked by
their factory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millwheel.connect.built_in import all_extras, extra_of
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import unknown
from millwheel.language.spec.reading.reader import NodeReader

_PATH_OPTIONS = ("path",)
"""Options that name files, in every kind: always text, and made absolute."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind with its options as plain data. Errors are reported at ``node``."""

    name: str
    options: Mapping[str, Any]
    node: YamlNode


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of ``what``: the built-in ones, and ``all_names``, all of them. To list all takes
    some milliseconds, for a look at each installed package."""

    what: str
    built_in: Collection[str]
    all_names: Callable[[], Sequence[str]]

    def has(self, name: object) -> bool:
        """Whether there is one of this name."""
        return name in self.built_in or name in self.all_names()


def read_kind(reader: NodeReader, node: YamlNode, kinds: Kinds, origin: str) -> Kind | None:
    """The one kind below ``node``; None, and a problem, unless there is exactly one valid kind.

    Relative paths are relative to the folder ``origin``.
    """
    if isinstance(node.value, str) and kinds.has(node.value):
        return Kind(node.value, {}, node)
    if not isinstance(node.value, dict) or len(node.value) != 1:
        names = kinds.all_names()
        text = (
            f"names one {kinds.what} with its options, for example {_example(kinds)}. Known:"
            f" {', '.join(names)}"
        )
        reader.bad(node, text)
        return None
    name, options = next(iter(node.value.items()))
    if not kinds.has(name):
        names = kinds.all_names()
        reader.bad(options, f"{unknown(kinds.what, name, names)}{_extras(name, names)}")
        return None
    entries = reader.entries(options, _example(kinds))
    return Kind(
        name, {option: _value(option, child, origin) for option, child in entries.items()}, options
    )


def _example(kinds: Kinds) -> str:
    """How to write one of them."""
    if "files" in kinds.built_in:
        return "{files: {path: …}}"
    return f"{{{min(kinds.built_in)}: {{}}}}"


def _extras(name: str, names: Sequence[str]) -> str:
    """The end of the sentence about an unknown kind: the extra that provides the connector."""
    if extra := extra_of(str(name)):
        own = f"; its name is {extra!r}" if extra in names else ""
        return f". For {name} there is a connector: pip install 'millwheel-spark[{extra}]'{own}"
    return (
        ". Connectors for other systems need an extra: pip install 'millwheel-spark[EXTRA]', one"
        f" of {all_extras()}"
    )


def blame(reader: NodeReader, kind: Kind, error: Exception) -> None:
    """Report a factory's error at the option that it names, or at the kind."""
    text = str(error)
    entries = kind.node.value if isinstance(kind.node.value, dict) else {}
    named = [child for option, child in entries.items() if repr(option) in text]
    reader.bad(named[0] if named else kind.node, text)


def _value(option: str, node: YamlNode, origin: str) -> Any:
    if option not in _PATH_OPTIONS:
        return node.data()
    if isinstance(node.value, list):
        return [_absolute(child, origin) for child in node.value]
    return _absolute(node, origin)


def _absolute(node: YamlNode, origin: str) -> Any:
    if not (isinstance(node.value, str) or (node.given and node.is_scalar)) or not node.text:
        return node.data()
    return node.text if "://" in node.text else str(Path(origin, node.text))
