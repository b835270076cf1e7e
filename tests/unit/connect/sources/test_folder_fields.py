"""Folders that name fields, in every format, in rows and in columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millwheel.errors import SetupError
from tests.fakes.reading import open_file, read_on

FIELDS = {"n": "int", "day": "str", "shop": "int", "none": "str"}
FOLDER = "day=2026-01-31%20x/shop=7/none=__HIVE_DEFAULT_PARTITION__/other=9"
WHOLE: list[dict[str, Any]] = [
    {"n": n, "day": "2026-01-31 x", "shop": 7, "none": None} for n in range(200)
]


def written(folder: Path, kind: str) -> Path:
    path = folder / FOLDER / f"a.{kind}"
    path.parent.mkdir(parents=True)
    if kind == "parquet":
        pq.write_table(pa.table({"n": range(200)}), path)
    elif kind == "csv":
        path.write_text("n\n" + "".join(f"{n}\n" for n in range(200)), encoding="utf-8")
    else:
        path.write_text("".join(f'{{"n": {n}}}\n' for n in range(200)), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("columns", [False, True])
def test_a_declared_field_is_what_its_folder_says(tmp_path: Path, kind: str, columns: bool) -> None:
    path = written(tmp_path, kind)
    assert read_on(open_file(path, kind, fields=FIELDS), columns=columns).values == WHOLE


def test_a_folder_that_is_not_declared_is_only_a_folder(tmp_path: Path) -> None:
    path = written(tmp_path, "jsonl")
    assert read_on(open_file(path, fields={"n": "int"})).values == [{"n": n} for n in range(200)]
    assert read_on(open_file(path)).values == [{"n": n} for n in range(200)]


def test_a_folder_of_another_type_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="day=2026-01-31%20x"):
        open_file(written(tmp_path, "jsonl"), fields={"day": "int"})


@pytest.mark.parametrize("columns", [False, True])
def test_a_folder_may_name_a_time(tmp_path: Path, columns: bool) -> None:
    path = tmp_path / "day=2026-01-01" / "a.jsonl"
    path.parent.mkdir()
    path.write_text('{"n": 1}\n', encoding="utf-8")
    reader = open_file(path, fields={"n": "int", "day": "timestamp"})
    assert read_on(reader, columns=columns).values == [{"n": 1, "day": 1_767_225_600_000_000}]
