"""Window and trigger objects as YAML would write them."""

from __future__ import annotations

from collections.abc import Callable
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


def join_tree(window: Any, how: str, ttl: Any, within: Any, keep: Keep) -> dict[str, Any]:
    """The values of ``window:``, if there is one, and ``join:``."""
    fields = {} if window is None else {"window": window_tree(window, keep)}
    given = {"ttl": ttl, "within": within}
    settings = {name: value for name, value in given.items() if value is not None}
    return {**fields, "join": {"kind": how, **settings} if settings else how}


def trigger_tree(trigger: Trigger, keep: Keep) -> Any:
    """The value of ``trigger:``."""
    return trees.trigger_tree(trigger, lambda own: {"class": keep(lambda: own, "trigger")})
