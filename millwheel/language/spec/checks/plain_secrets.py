"""Options that are secrets in plain text: worth a warning, and refused where a run is secured."""

from __future__ import annotations

import re
from collections.abc import Iterator

from millwheel.adapters.secret_values import holds_secret
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader

_OPTIONS = re.compile(
    r"streams\.[^.]+\.source\..+|sinks\..+|computations\.[^.]+\.(?:options|enrich)\..+"
)
# maps of the user's own names: one may be called token
_NAMES_OF_FIELDS = ("columns", "fields", "add", "by")


def check_plain_secrets(reader: NodeReader, top: YamlNode, refused: bool) -> None:
    """Name each option that sounds like a secret, or has a password within, and is not
    a ``${secret:NAME}``."""
    note = reader.problems.add if refused else reader.problems.warn
    for name, node in _scalars("", top):
        if _OPTIONS.fullmatch(node.path) and holds_secret(name, node.value):
            note(
                node.line,
                node.path,
                "this is a secret in plain text, which the root and savepoints would keep; write"
                " ${secret:NAME}, and give its value in a file (--secrets) or in the environment",
            )


def _scalars(name: str, node: YamlNode) -> Iterator[tuple[str, YamlNode]]:
    """All options with their names; elements of a list have the name of the list."""
    if isinstance(node.value, dict):
        for inner, child in node.value.items():
            if inner not in _NAMES_OF_FIELDS:
                yield from _scalars(inner, child)
    elif isinstance(node.value, list):
        for child in node.value:
            yield from _scalars(name, child)
    else:
        yield name, node
