"""Pipelines that no file defines (made in a test or a shell), kept in this process so that their
code has names."""

from __future__ import annotations

from typing import Any


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
