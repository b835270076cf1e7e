"""An ``aggregate`` without a ``window``: each key is one group without an end.

totals: {input: {bids: {key: auction}}, aggregate: {bids: count}, output: totals}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millwheel.core.pipeline.work import (
    FOREVER,
    AggregationSpec,
    FiringSpec,
    WindowSpec,
)
from millwheel.language.spec.change_logs.speaking import UNDECIDED
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader

_OTHERS = ("window", "callback", "slices", "uv", "dictionary", "over")
"""With one of these an ``aggregate`` is of something else, or is refused there."""
_EACH_BUNDLE = {"repeat": {"after_count": 1}}
"""Fixed: the trigger that is ready after each bundle."""
_NOT_HERE = {
    "allowed_lateness": "takes late records at any time",
    "late": "takes late records at any time",
    "output_time": "gives each version the latest time of its group's records",
}


def is_change_log(fields: Mapping[str, YamlNode]) -> bool:
    """Whether a computation with these fields is one."""
    return "aggregate" in fields and not fields.keys() & set(_OTHERS)


def check_change_log(reader: NodeReader, fields: Mapping[str, YamlNode]) -> None:
    """Notes what belongs to windows."""
    for name, why in _NOT_HERE.items():
        if name in fields:
            reader.bad(
                fields[name],
                f"a change log (an aggregate without a window) {why}; leave out {name}, or write"
                " a window",
            )


def change_log(
    trigger: Mapping[str, Any] | None, ttl_us: int | None, fields: Mapping[str, YamlNode]
) -> AggregationSpec:
    """The work of one, without its aggregates. Whether it takes back what it replaces is decided
    later, unless it is written."""
    accumulation = fields["accumulation"].text if "accumulation" in fields else UNDECIDED
    return AggregationSpec(
        window=WindowSpec(FOREVER, {} if ttl_us is None else {"ttl_us": ttl_us}),
        firing=FiringSpec(
            trigger=_EACH_BUNDLE if trigger is None else trigger, accumulation=accumulation
        ),
    )
