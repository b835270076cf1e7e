"""The contract of sources, on the built-in ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from millwheel.connect.kinds import build_source
from millwheel.connect.sources.base import Source
from millwheel.core.pipeline.spec import SourceSpec
from millwheel.testing.contracts import SourceContract

ROWS = [{"n": number, "word": f"w{number}"} for number in range(40)]


class OfAFile(SourceContract):
    name: str
    fields: dict[str, str] | None = None

    @pytest.fixture(autouse=True)
    def _written(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.write(tmp_path / self.name)

    def write(self, path: Path) -> None:
        raise AssertionError

    def source(self) -> Source:
        options = {"path": str(self.folder / self.name), "format": self.name.partition(".")[2]}
        return build_source(SourceSpec("files", options), "/", None, self.fields)


class TestLinesOfJson(OfAFile):
    name = "in.jsonl"

    def write(self, path: Path) -> None:
        lines = [json.dumps(row) for row in ROWS]
        path.write_text("\n".join([*lines[:20], "{broken", "", *lines[20:]]) + "\n")

    def values(self) -> list[Any]:
        return ROWS


class TestLinesOfJsonInColumns(TestLinesOfJson):
    fields = {"n": "int", "word": "str"}


class TestCsv(OfAFile):
    name = "in.csv"
    fields = {"n": "int", "word": "str"}

    def write(self, path: Path) -> None:
        path.write_text("n,word\n" + "".join(f"{row['n']},{row['word']}\n" for row in ROWS))

    def values(self) -> list[Any]:
        return ROWS


class TestParquet(OfAFile):
    name = "in.parquet"

    def write(self, path: Path) -> None:
        pl.DataFrame(ROWS).write_parquet(path, row_group_size=7)

    def values(self) -> list[Any]:
        return ROWS


class TestAGenerator(SourceContract):
    def source(self) -> Source:
        options = {"count": 50, "partitions": 3, "rate": 0}
        return build_source(SourceSpec("generator", options), "/")
