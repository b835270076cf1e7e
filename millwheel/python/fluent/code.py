"""The user's code in a fluent pipeline, and the names by which workers find it.

Nothing is pickled. A worker imports the same file again, builds the same pipeline, and asks it for
the function under the name of its computation. An object with a name of its own in a module is
found by ``module:name``, as in YAML. Pipelines that no file defines (made in a test or a shell) are
kept in this process.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from millwheel.python.fluent.code_lines import Code


class CodeShelf:
    """All code of one pipeline by its slug, as attributes: ``pipeline.code.visits_map``."""

    def __init__(self) -> None:
        self._things: dict[str, Any] = {}

    def put(self, thing: Any, *words: str) -> Code:
        """Keep something under a name made of words, with a number if the name is taken."""
        stem = re.sub(r"\W", "_", "_".join(words))
        if stem[:1].isdigit():
            stem = f"n{stem}"
        slug, number = stem, 1
        while slug in self._things:
            number += 1
            slug = f"{stem}_{number}"
        self._things[slug] = thing
        return Code(thing, slug)

    def __getattr__(self, slug: str) -> Any:
        things = self.__dict__.get("_things", {})
        if slug in things:
            return things[slug]
        raise AttributeError(
            f"the pipeline has no code {slug!r}; it has {', '.join(sorted(things)) or 'none'}"
        )


def own_name(thing: Any) -> str:
    """``module:name`` if Python finds exactly this object there, else "" (a lambda, a nested
    function, a partial)."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        or module == "__main__"
        or "<" in name
    ):
        return ""
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return f"{module}:{name}" if value is thing else ""


class Held:
    """Pipelines as attributes."""

    def __init__(self) -> None:
        self._pipelines: list[Any] = []

    def put(self, pipeline: Any) -> str:
        """Keep a pipeline as long as the process lives, and return the attribute's name."""
        self._pipelines.append(pipeline)
        return f"p{len(self._pipelines) - 1}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("p") and name[1:].isdigit() and int(name[1:]) < len(self._pipelines):
            return self._pipelines[int(name[1:])]
        raise AttributeError(f"no pipeline {name!r} is held in this process")


held = Held()


def hold(pipeline: Any) -> str:
    """Keep a pipeline, and return its ``module:name``."""
    return f"{__name__}:held.{held.put(pipeline)}"
