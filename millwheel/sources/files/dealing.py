"""The order of files among which shards divide a source."""

from __future__ import annotations

from collections.abc import Mapping


def dealt(sizes: Mapping[str, int]) -> list[str]:
    """Names in an order in which each half, each half of a half, and so on, is about as large as the other."""
    if len(sizes) < 2:
        return list(sizes)
    halves: tuple[dict[str, int], dict[str, int]] = {}, {}
    room = (len(sizes) + 1) // 2
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        half = min((half for half in halves if len(half) < room), key=lambda half: sum(half.values()))
        half[name] = sizes[name]
    return [name for half in sorted(halves, key=len) for name in dealt(half)]
