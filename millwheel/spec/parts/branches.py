"""``deduplicate:``, ``branch:`` and ``order_by:`` of a computation.

deduplicate: {by: [client, path], within: 10m}
branch: {errors: status >= 500, slow: duration > 2, others: otherwise}
order_by: timestamp
"""

from __future__ import annotations

from collections.abc import Mapping

from millwheel.core.pipeline.spec import DEAD_LETTERS, BranchSpec, DeduplicateSpec
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.reader import NodeReader

OTHERWISE = "otherwise"
FIELDS = ("deduplicate", "branch", "match")
_DEDUPLICATE = "{by: [client, path], within: 10m}"
_BRANCH = "{errors: status >= 500, others: otherwise}"


def read_deduplicate(reader: NodeReader, node: YamlNode | None) -> DeduplicateSpec | None:
    """None if there is none, or it cannot be read."""
    if node is None:
        return None
    fields = reader.fields(node, ("by", "within"), _DEDUPLICATE)
    if "within" not in fields:
        if node.is_map:
            reader.missing(node, "within", "for how long copies are expected; write for example within: 10m")
        return None
    names = [reader.text(item, "client") for item in reader.items(fields["by"])] if "by" in fields else []
    within = reader.duration(fields["within"], 0, 1)
    return DeduplicateSpec(within, tuple(names)) if within and all(names) else None


def read_branches(reader: NodeReader, node: YamlNode | None) -> tuple[BranchSpec, ...]:
    """The branches, in the order in which they are tried."""
    if node is None:
        return ()
    found: list[BranchSpec] = []
    for stream, child in reader.entries(node, _BRANCH).items():
        if not reader.check_name(child, stream, "stream"):
            continue
        if stream == DEAD_LETTERS:
            reader.bad(child, f"{DEAD_LETTERS!r} is filled by the system; choose another name")
        elif child.text == OTHERWISE:
            found.append(BranchSpec(stream))
        elif condition := reader.expression(child, "status >= 500, or otherwise for records of no other branch"):
            found.append(BranchSpec(stream, condition))
    rests = [each.stream for each in found if not each.condition]
    if len(rests) > 1:
        reader.bad(node.value[rests[1]], f"{rests[0]} already takes the records of no other branch; give a condition")
    if not found and not reader.problems.concerns(node.path):
        reader.bad(node, f"names no stream; write for example {_BRANCH}")
    return tuple(found)


def read_match(reader: NodeReader, fields: Mapping[str, YamlNode]) -> bool:
    """True if a record takes every branch whose condition holds."""
    if "match" in fields and "branch" not in fields:
        reader.bad(fields["match"], "match is for computations with branch; leave it out")
    return reader.choice(fields.get("match"), ["first", "all"], "first") == "all"


def read_order(reader: NodeReader, fields: Mapping[str, YamlNode]) -> bool:
    """True if records come in the order of their timestamps."""
    if "order_by" in fields and "window" in fields:
        reader.bad(fields["order_by"], "a window does not depend on the order of its records; leave out order_by")
    return reader.choice(fields.get("order_by"), ["timestamp"], "") == "timestamp"
