"""The files source: which files are partitions, how they are named, and options that are
refused."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millwheel.connect.kinds import build_source
from millwheel.connect.sources.base import Partition
from millwheel.core.pipeline.spec import SourceSpec
from millwheel.errors import SetupError
from tests.fakes.reading import files, open_file, read_on


def make(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"{}\n")
    return folder


def names(source: Any) -> list[str]:
    return sorted(partition.name for partition in source.partitions())


def test_a_partition_is_named_by_its_path_below_the_glob(tmp_path: Path) -> None:
    make(tmp_path, "in/b.jsonl", "in/a.jsonl", "in/c.txt", "in/.hidden.jsonl", "in/deep/er/d.jsonl")
    assert names(files(tmp_path / "in" / "*.jsonl")) == ["a.jsonl", "b.jsonl"]
    assert names(files(tmp_path / "in" / "**" / "*.jsonl")) == [
        "a.jsonl",
        "b.jsonl",
        "deep/er/d.jsonl",
    ]
    assert names(files(tmp_path / "*" / "a.jsonl")) == ["in/a.jsonl"]
    assert names(files(tmp_path / "in" / "a.jsonl")) == ["a.jsonl"]


def test_followed_files_are_listed_by_name_whatever_their_size(tmp_path: Path) -> None:
    make(tmp_path, "b.jsonl", "a.jsonl", "c.jsonl")
    (tmp_path / "c.jsonl").write_bytes(b"{}\n" * 9)
    listed = [partition.name for partition in files(tmp_path / "*.jsonl", follow=True).partitions()]
    assert listed == ["a.jsonl", "b.jsonl", "c.jsonl"]


def test_a_folder_means_the_visible_files_in_it(tmp_path: Path) -> None:
    make(tmp_path, "in/a.jsonl", "in/_SUCCESS", "in/.part.tmp", "in/deep/b.jsonl")
    assert names(files(tmp_path / "in")) == ["in/a.jsonl"]


def test_several_globs_share_their_files_and_the_folder_above_them(tmp_path: Path) -> None:
    make(tmp_path, "x/a.jsonl", "y/a.jsonl")
    paths = [str(tmp_path / "x" / "*"), str(tmp_path / "y" / "*"), str(tmp_path / "*" / "a.jsonl")]
    source = build_source(SourceSpec("files", {"path": paths, "format": "jsonl"}), "/")
    assert names(source) == ["x/a.jsonl", "y/a.jsonl"]
    assert [read_on(source.open(partition)).values for partition in source.partitions()] == [
        [{}],
        [{}],
    ]


def test_a_relative_path_is_relative_to_the_pipelines_folder(tmp_path: Path) -> None:
    make(tmp_path, "in/a.jsonl")
    source = build_source(SourceSpec("files", {"path": "in/*", "format": "jsonl"}), str(tmp_path))
    assert names(source) == ["a.jsonl"]
    assert source.bounded


def test_a_glob_without_files_is_a_setup_error_unless_it_is_followed(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no file matches .*nothing/\*\.jsonl; check the path"):
        files(tmp_path / "nothing" / "*.jsonl").partitions()
    source = files(tmp_path / "later" / "*.jsonl", follow=True)
    assert not source.bounded
    assert names(source) == []
    make(tmp_path, "later/a.jsonl")
    assert names(source) == ["a.jsonl"]


def test_a_partition_outside_the_globs_folder_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "secret", "in/a.jsonl")
    with pytest.raises(SetupError, match="lies outside"):
        files(tmp_path / "in" / "*").open(Partition("../secret"))


def test_a_file_that_a_rotation_has_compressed_is_left_alone_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path, "in/a.jsonl", "in/a.jsonl.1.gz", "in/a.jsonl.2.gz")
    source = files(tmp_path / "in" / "*", follow=True)
    for _ in range(3):
        assert names(source) == ["a.jsonl"]
    assert len(caplog.messages) == 1
    assert "compressed files are not followed" in caplog.messages[0]


def test_a_followed_file_that_changed_is_known_by_its_version(tmp_path: Path) -> None:
    make(tmp_path, "in/a.jsonl", "in/b.jsonl")
    source = files(tmp_path / "in" / "*", follow=True)
    before = [partition.version for partition in source.partitions()]
    with (tmp_path / "in" / "b.jsonl").open("a") as out:
        out.write("{}")
    after = [partition.version for partition in source.partitions()]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"path": "x"}, "needs the option 'format'; write for example format: jsonl"),
        ({"format": "csv"}, "needs the option 'path'"),
        ({"path": "x", "fromat": "csv"}, "has no option 'fromat'; did you mean 'format'?"),
        (
            {"path": "x", "format": "json"},
            "option 'format' is 'json' (did you mean 'jsonl'?); write one of jsonl, csv,",
        ),
        ({"path": "", "format": "csv"}, "option 'path' is empty"),
        ({"path": ["a", ""], "format": "csv"}, "option 'path' is empty"),
        ({"path": [], "format": "csv"}, "option 'path' is empty"),
        (
            {"path": 7, "format": "csv"},
            "option 'path': expected str | array, got int; write for example path: input/",
        ),
        ({"path": "s3://b/x", "format": "csv"}, "option 'path' is s3://b/x, which names no bucket"),
        (
            {"path": "x", "format": "parquet", "follow": True},
            "option 'follow' does not fit format parquet",
        ),
        (
            {"path": "x.csv.gz", "format": "csv", "follow": True},
            "option 'follow' does not fit x.csv.gz: compressed",
        ),
        (
            {"path": "x", "format": "csv", "follow": "often"},
            "option 'follow': expected bool, got str",
        ),
        (
            {"path": "x", "format": "csv", "delimiter": "::"},
            "option 'delimiter' is '::'; write one character",
        ),
        (
            {"path": "x", "format": "csv", "columns": ["a", "a"]},
            "option 'columns' names a column twice",
        ),
        (
            {"path": "x", "format": "jsonl", "columns": ["a"]},
            "'columns' are for format: csv, not jsonl",
        ),
        (
            {"path": "x", "format": "jsonl", "max_line_bytes": 3},
            "option 'max_line_bytes' is 3; write a number from",
        ),
    ],
)
def test_options_that_cannot_work_are_refused_with_the_fix(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match="the source 'files'") as raised:
        build_source(SourceSpec("files", options), "/")
    assert problem in str(raised.value)


NEW_YEAR = 1_767_225_600_000_000  # 2026-01-01
TIMES = {"at": "timestamp", "ms": "timestamp ms - -", "day": "timestamp - Europe/Berlin %d.%m.%Y"}
WRITTEN = [
    {"at": "2026-01-01T01:00:00+01:00", "ms": 1_767_225_600_000, "day": "01.01.2026"},
    {"at": "2026-01-01T00:00:01+00:00", "ms": 1_767_225_600_001, "day": "2.1.2026"},
]
READ = [
    {"at": NEW_YEAR, "ms": NEW_YEAR, "day": NEW_YEAR - 3_600_000_000},
    {"at": NEW_YEAR + 1_000_000, "ms": NEW_YEAR + 1_000, "day": NEW_YEAR + 82_800_000_000},
]


def _written(path: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "csv":
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines), encoding="utf-8")
    else:
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("columns", [False, True])
def test_times_are_read_in_rows_and_in_columns(tmp_path: Path, kind: str, columns: bool) -> None:
    path = _written(tmp_path / f"a.{kind}", kind, WRITTEN)
    assert read_on(open_file(path, kind, fields=TIMES), columns=columns).values == READ


def test_whole_lines_of_times_become_columns(tmp_path: Path) -> None:
    path = _written(tmp_path / "a.jsonl", "jsonl", WRITTEN)
    reader = open_file(path, fields=TIMES)
    assert reader.take_whole(dict.fromkeys(TIMES, "int"))
    assert read_on(reader, columns=True).values == READ


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_what_is_no_time_is_a_reject(tmp_path: Path, kind: str) -> None:
    rows = [WRITTEN[0], {**WRITTEN[1], "at": "yesterday"}]
    path = _written(tmp_path / f"a.{kind}", kind, rows)
    found = read_on(open_file(path, kind, fields=TIMES))
    assert found.values == READ[:1]
    [reject] = found.rejects
    assert "'at' is declared as timestamp: the timestamp 'yesterday' is neither" in reject.reason


def test_columns_of_lines_with_what_is_no_time_are_read_as_rows(tmp_path: Path) -> None:
    rows = [WRITTEN[0], {**WRITTEN[1], "at": "yesterday"}]
    reader: Any = open_file(_written(tmp_path / "a.jsonl", "jsonl", rows), fields=TIMES)
    assert reader.read_frame(0, 1_000) is None


def test_native_times_of_parquet_need_no_unit(tmp_path: Path) -> None:
    when = datetime(2026, 1, 1, tzinfo=timezone.utc)
    table = pa.table({"at": pa.array([when] * 2, pa.timestamp("ms", "UTC")), "none": [None] * 2})
    pq.write_table(table, tmp_path / "a.parquet")
    kinds = {"at": "timestamp", "none": "timestamp", "gone": "timestamp"}
    for columns in (False, True):
        found = read_on(open_file(tmp_path / "a.parquet", "parquet", fields=kinds), columns=columns)
        assert [row["at"] for row in found.values] == [NEW_YEAR] * 2
        assert found.values[0]["none"] is None
