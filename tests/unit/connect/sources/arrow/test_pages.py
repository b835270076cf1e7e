"""Pages of Parquet files are found by their headers alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from millwheel.connect.sources.arrow.pages import Encoding, PageKind, pages_of, span_of
from tests.unit.connect.sources.arrow.test_bounds import ROWS, dictionary, pread, written


def test_pages_are_found_by_their_headers(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", dictionary(["x" * 5_000, "y"]), data_page_size=100)
    column = pq.read_metadata(path).row_group(0).column(1)
    with open(path, "rb") as file:
        found = list(pages_of(lambda at, size: pread(file, at, size), span_of(column)))
    assert (found[0].kind, found[0].values, found[0].plain) == (PageKind.DICTIONARY, 2, 5_009)
    assert {page.encoding for page in found[1:]} == {Encoding.RLE_DICTIONARY}
    assert sum(page.values for page in found[1:]) == ROWS
