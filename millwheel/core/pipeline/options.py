"""Options of sources and sinks as they stand in a pipeline, with the names of secrets in place of
their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
"""A name that may be that of an environment variable and of a file, and leads out of no folder."""
_PART = re.compile(r"\$\$\{|\$\{secret:([^{}]*)\}")


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """An option whose value is resolved only where it is used. ``text`` is as in YAML:
    ``postgres://u:${secret:PG}@db``, with ``$${`` for a plain ``${``."""

    text: str

    def __repr__(self) -> str:
        return "***"

    def filled(self, value_of: Callable[[str], str]) -> str:
        """The value itself; ``value_of`` gives a secret by its name."""
        return _PART.sub(
            lambda part: "${" if part.group(1) is None else value_of(part.group(1)), self.text
        )
