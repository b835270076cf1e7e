"""Pipelines as trees and as short YAML text: the one from the other, both ways."""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML

_PLAIN = re.compile(r"[A-Za-z_][\w.]*|\d+(ms|us|s|m|h)")
_WORDS = frozenset(
    {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "True", "False", "Null", "None"}
)


def emit(tree: dict[str, Any]) -> str:
    """YAML text: a line for each stream, computation and sink."""
    lines = []
    for part, inner in tree.items():
        if not isinstance(inner, dict):
            lines.append(f"{part}: {_flow(inner)}")
        elif inner:
            lines += [f"{part}:", *(f"  {name}: {_flow(value)}" for name, value in inner.items())]
    return "\n".join(lines) + "\n"


def parse(text: str) -> dict[str, Any]:
    """The tree of a text."""
    found = YAML(typ="safe", pure=True).load(text)
    assert isinstance(found, dict)
    return found


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_flow(name)}: {_flow(inner)}" for name, inner in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, str) and not (
        _PLAIN.fullmatch(value) and value not in _WORDS - {"n", "y"}
    ):
        return '"' + value.replace('"', '\\"') + '"'
    return str(value)
