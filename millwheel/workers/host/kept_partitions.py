"""The partitions of sources as the root keeps them, and how they are spread over the shards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from millwheel.core.model.damage import checked
from millwheel.core.model.ranges import SPACE
from millwheel.sources.base import ENDS, Partition

decode_partitions = checked(msgspec.json.Decoder(list[Partition]).decode, "the partitions of a source (inputs/)")


def kept_ends(root: Path) -> dict[str, Sequence[Partition]]:
    """By stream: where unbounded sources ended when a run began that ends once it has caught up; else nothing."""
    paths = (root / "inputs").glob(f"*{ENDS}")
    return {path.name.removesuffix(ENDS): decode_partitions(path.read_bytes()) for path in paths}


def spread_of(partitions: Sequence[Partition]) -> dict[str, int]:
    """Positions in the key space for a list of partitions that never changes: evenly, where hashes would crowd some
    shards and leave others without any."""
    count = len(partitions)
    return {partition.name: (2 * number + 1) * SPACE // (2 * count) for number, partition in enumerate(partitions)}
