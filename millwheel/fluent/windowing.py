"""Window and trigger objects as YAML would write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millwheel.core.model.times import duration_text
from millwheel.core.triggers.combinations import AfterAll, AfterAny, AfterEach, Once, OrFinally, Repeat
from millwheel.core.triggers.triggers import (
    AfterBytes,
    AfterCount,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    Never,
    Trigger,
)
from millwheel.core.windows.windows import Count, Cumulative, Global, Sessions, Sliding, Tumbling
from millwheel.fluent.code_lines import Code

Keep = Callable[[Any, str], Code]
"""(an object of the user's, a word for it) -> the code under which the pipeline keeps it."""


def window_tree(window: Any, keep: Keep) -> Any:
    """The value of ``window:``. An object of the user's is kept, and named as a factory without options."""
    if type(window) is Tumbling:
        return {"tumbling": duration_text(window.size), **_offset(window), **_zone(window), **_empty(window)}
    if type(window) is Sliding:
        return {
            "sliding": duration_text(window.size), "every": duration_text(window.every), **_offset(window),
            **_changes(window),
        }  # fmt: skip
    if type(window) is Cumulative:
        return {
            "cumulative": duration_text(window.size), "every": duration_text(window.every), **_offset(window),
            **_zone(window), **_changes(window),
        }  # fmt: skip
    if type(window) is Sessions:
        return {"session": duration_text(window.gap)}
    if type(window) is Count:
        return {"count": window.count}
    if type(window) is Global:
        return "global"
    return {"custom": keep(lambda: window, "window")}


def _offset(window: Tumbling | Sliding | Cumulative) -> dict[str, str]:
    return {"offset": duration_text(window.offset)} if window.offset else {}


def _zone(window: Tumbling | Cumulative) -> dict[str, str]:
    return {"time_zone": window.time_zone} if window.time_zone else {}


def _changes(window: Sliding | Cumulative) -> dict[str, str]:
    return {"emit": "changes"} if window.changes else {}


def _empty(window: Tumbling) -> dict[str, str]:
    return {"emit": "empty"} if window.empty else {}


def trigger_tree(trigger: Trigger, keep: Keep) -> Any:
    """The value of ``trigger:``."""
    write = _TREES.get(type(trigger))
    if write is None:
        return {"custom": {"class": keep(lambda: trigger, "trigger")}}
    return write(trigger, lambda inner: trigger_tree(inner, keep))


def _after_watermark(trigger: AfterWatermark, tree: Callable[[Trigger], Any]) -> Any:
    parts = {"early": trigger.early, "late": trigger.late}
    given = {name: tree(inner) for name, inner in parts.items() if inner is not None}
    return {"after_watermark": given} if given else "after_watermark"


def _after_processing_time(trigger: AfterProcessingTime, tree: Callable[[Trigger], Any]) -> Any:
    delay = duration_text(trigger.delay)
    return {
        "after_processing_time": {"delay": delay, "align": duration_text(trigger.align)} if trigger.align else delay
    }


_TREES: dict[type, Callable[[Any, Callable[[Trigger], Any]], Any]] = {
    Default: lambda trigger, tree: "default",
    Never: lambda trigger, tree: "never",
    AfterWatermark: _after_watermark,
    AfterCount: lambda trigger, tree: {"after_count": trigger.count},
    AfterBytes: lambda trigger, tree: {"after_bytes": trigger.size},
    AfterProcessingTime: _after_processing_time,
    AfterPercentileWatermark: lambda trigger, tree: {"after_percentile_watermark": trigger.share},
    Repeat: lambda trigger, tree: {"repeat": tree(trigger.trigger)},
    Once: lambda trigger, tree: {"once": tree(trigger.trigger)},
    AfterAny: lambda trigger, tree: {"any": [tree(part) for part in trigger.parts]},
    AfterAll: lambda trigger, tree: {"all": [tree(part) for part in trigger.parts]},
    AfterEach: lambda trigger, tree: {"each": [tree(part) for part in trigger.parts]},
    OrFinally: lambda trigger, tree: {"or_finally": {"main": tree(trigger.parts[0]), "until": tree(trigger.parts[1])}},
}
