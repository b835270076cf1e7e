"""Percentile watermarks: the time that a given share of the shards has passed, however far the
others are behind.

The percentile watermark of a node for a share s is the highest time that at least that share of its
shards has passed. A shard has passed a time when nothing that it works on lies before it, and when
the percentile watermarks of all nodes that feed it have passed it too: a slow shard anywhere
upstream is left out as long as it belongs to the others. With s = 1 it is the low watermark. It
promises nothing about the records of the shards that are left out: results that are emitted by it
are early.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

Shares = tuple[float, ...]
READ = 1.0
"""As this share, sources report that they have read all, while productions of computations in their
shards are on their way and still hold their watermark."""


def share_name(node: str, share: float) -> str:
    """The name under which a node's percentile watermark is published, beside its own. No node has
    such a name."""
    return f"{node}@{share!r}"


def needed(share: float, shards: int) -> int:
    """How many of ``shards`` make up the share: at least one."""
    return max(1, math.ceil(share * shards - 1e-9))


def shares_by_node(
    feeders: Mapping[str, tuple[str, ...]], used: Mapping[str, Shares]
) -> dict[str, Shares]:
    """The shares that matter at each node: those that it, or any node behind it, uses."""
    by_node: dict[str, set[float]] = {}
    for node, shares in used.items():
        reached, frontier = {node}, [node]
        while frontier:
            fresh = {feeder for name in frontier for feeder in feeders[name]} - reached
            reached |= fresh
            frontier = list(fresh)
        for name in reached if shares else ():
            by_node.setdefault(name, set()).update(shares)
    return {name: tuple(sorted(shares)) for name, shares in by_node.items()}
