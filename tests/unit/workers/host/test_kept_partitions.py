from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from millwheel.core.model.ranges import SPACE
from millwheel.errors import CorruptionError
from millwheel.sources.base import ENDS, Partition
from millwheel.workers.host.kept_partitions import decode_partitions, kept_ends, spread_of


def test_partitions_are_spread_evenly_over_the_key_space() -> None:
    found = sorted(spread_of([Partition("a"), Partition("b"), Partition("c"), Partition("d")]).values())
    assert found == [SPACE // 8, 3 * SPACE // 8, 5 * SPACE // 8, 7 * SPACE // 8]


def test_the_ends_of_sources_are_read_by_stream_and_damage_is_corruption(tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / f"hits{ENDS}").write_bytes(msgspec.json.encode([Partition("a")]))
    assert kept_ends(tmp_path) == {"hits": [Partition("a")]}
    with pytest.raises(CorruptionError):
        decode_partitions(b"[")
