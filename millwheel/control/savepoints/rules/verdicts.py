"""What a change of a pipeline asks for, and the simplest rules about one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

from millwheel.control.savepoints.blueprint import NodeBlueprint


class Compatibility(Enum):
    """The requirement of a change. FREE: the same root may continue. SAVEPOINT: a savepoint and a
    new root are needed, because nothing may be in flight during the change. REFUSED: the state does
    not fit."""

    FREE = "compatible"
    SAVEPOINT = "migrates"
    REFUSED = "refused"


Found = Iterator[tuple[Compatibility, str]]
Rule = Callable[[Any, Any, NodeBlueprint], Found]
"""(a facet of a node before, after, the node as it is) -> what the difference asks for, and why."""
NEW_NAME = "give it another name to start it empty"


def changed_names(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two settings by name."""
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def free(what: str) -> Rule:
    """The same root may continue."""

    def rule(before: Any, after: Any, node: NodeBlueprint) -> Found:
        yield Compatibility.FREE, what

    return rule


def at_rest(what: str) -> Rule:
    """Nothing may be in flight."""

    def rule(before: Any, after: Any, node: NodeBlueprint) -> Found:
        yield Compatibility.SAVEPOINT, what

    return rule
