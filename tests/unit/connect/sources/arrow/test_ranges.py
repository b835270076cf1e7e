"""The bytes of a file that were looked at are not fetched again."""

from __future__ import annotations

import io
from pathlib import Path

from millwheel.connect.sources.arrow.parquet import ParquetBatches
from millwheel.connect.sources.arrow.ranges import KeptFile
from tests.unit.connect.sources.arrow.test_bounds import ROWS, dictionary, written


def test_an_object_is_fetched_once_for_the_look_and_for_the_rows(tmp_path: Path) -> None:
    path = Path(
        written(
            tmp_path / "a.parquet",
            dictionary([str(at) * 20 for at in range(500)]),
            row_group_size=500,
        )
    )
    asked: list[int] = []

    class Content(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(size or 0)
            return super().read(size)

    data = path.read_bytes()
    batches = ParquetBatches("a.parquet", Content(data))
    source = batches._groups._source
    assert isinstance(source, KeptFile)
    found: list[int] = []
    while (batch := batches.after(len(found), 700, None)) is not None:
        found += batch.column(0).to_pylist()
    assert found == list(range(ROWS))
    assert sum(asked) < 1.2 * len(data) + (64 << 10)  # the end of the file is read first
    assert len(asked) <= 2 + ROWS // 500
    assert not source._kept
