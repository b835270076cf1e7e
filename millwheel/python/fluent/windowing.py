"""Window and trigger objects as YAML would write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millwheel.core.windows import kinds, trees
from millwheel.core.windows.triggers import Trigger
from millwheel.python.fluent.code_lines import Code

Keep = Callable[[Any, str], Code]
"""(an object of the user's, a word for it) -> the code under which the pipeline keeps it."""


def window_tree(window: Any, keep: Keep) -> Any:
    """The value of ``window:``. An object of the user's is kept, and named as a factory without
    options."""
    return kinds.window_tree(window) or {"custom": keep(lambda: window, "window")}


def join_tree(how: str, options: Mapping[str, Any], keep: Keep) -> dict[str, Any]:
    """The values of ``join:``, and of the options that stand beside it. None stands for an option
    that is not there."""
    given = {name: value for name, value in options.items() if value is not None}
    settings = {name: given.pop(name) for name in ("ttl", "within") if name in given}
    trees_of = {"window": window_tree, "trigger": trigger_tree}
    fields = {name: make(given.pop(name), keep) for name, make in trees_of.items() if name in given}
    return {**fields, **given, "join": {"kind": how, **settings} if settings else how}


def trigger_tree(trigger: Trigger, keep: Keep) -> Any:
    """The value of ``trigger:``."""
    return trees.trigger_tree(trigger, lambda own: {"class": keep(lambda: own, "trigger")})
