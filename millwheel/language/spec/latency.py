"""The ``latency:`` part: how long records may wait at each worker for others that share a step with
them."""

from __future__ import annotations

from millwheel.core.model.times import SECOND
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader

GREEDY, BALANCED = "greedy", "balanced"
# below, a rest costs more than it saves; above, acks would wait for too long
_LEAST_US, _MOST_US = 100, SECOND


def read_latency(reader: NodeReader, node: YamlNode | None) -> int | None:
    """The least time (µs) between the beginnings of two steps of a worker; 0 for ``greedy``, None
    for ``balanced``, which is the default."""
    if node is None or node.text == BALANCED:
        return None
    if node.text == GREEDY:
        return 0
    before = len(reader.problems.found)
    duration = reader.duration(node, 0)
    if len(reader.problems.found) == before and not _LEAST_US <= duration <= _MOST_US:
        reader.bad(
            node,
            f"must be {GREEDY}, {BALANCED} or a duration from 100us to 1s, such as 2ms, not"
            f" {node.text!r}",
        )
    return duration
