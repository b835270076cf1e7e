from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest

from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from millwheel.errors import SetupError
from millwheel.launch.progress.summary import Summary
from millwheel.python.handles.tables import RunResult, StreamFiles, files_of

ROWS = pl.DataFrame({"page": ["a", "b"], "n": [1, 2]})


def files(folder: Path, form: str = "jsonl") -> StreamFiles:
    (folder / ".hidden").mkdir()
    (folder / f"part-out-0-00000001.{form}").touch()
    return StreamFiles(folder, form)


def result(**streams: StreamFiles | str) -> RunResult:
    return RunResult(Summary(2, 2, 0, 0, 0, 1.0, 2.0), True, streams)


def test_rows_come_from_every_format(tmp_path: Path) -> None:
    for form in ("jsonl", "csv", "parquet"):
        folder = tmp_path / form
        folder.mkdir()
        found = files(folder, form)
        for number in (2, 3):
            path = folder / f"part-out-0-0000000{number}.{form}"
            {"jsonl": ROWS.write_ndjson, "csv": ROWS.write_csv, "parquet": ROWS.write_parquet}[
                form
            ](path)
        assert found.read().rows() == [("a", 1), ("b", 2)] * 2, form


def test_rows_with_other_fields_and_values_that_are_no_maps(tmp_path: Path) -> None:
    (tmp_path / "part-a-1.jsonl").write_text('{"a": 1}\n{"a": 2, "b": "x"}\n')
    assert StreamFiles(tmp_path, "jsonl").read().rows() == [(1, None), (2, "x")]
    (tmp_path / "part-a-1.jsonl").write_text("3\n4\n")
    assert StreamFiles(tmp_path, "jsonl").read().to_dict(as_series=False) == {"value": [3, 4]}


def test_no_rows_are_an_empty_table(tmp_path: Path) -> None:
    assert StreamFiles(tmp_path / "nowhere", "jsonl").read().height == 0


def test_the_only_stream_needs_no_name(tmp_path: Path) -> None:
    (tmp_path / "part-a-1.jsonl").write_text('{"a": 1}\n')
    found = result(
        a=StreamFiles(tmp_path, "jsonl"),
        printed="stdout",
        dead_letters=StreamFiles(tmp_path / "d", "jsonl"),
    )
    assert found.to_polars().rows() == found.to_polars("a").rows() == [(1,)]
    assert found.to_arrow().num_rows == 1
    assert found.streams == ("a", "dead_letters")


def test_what_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    found = result(
        pages=StreamFiles(tmp_path, "jsonl"), users=StreamFiles(tmp_path, "jsonl"), printed="stdout"
    )
    with pytest.raises(SetupError, match="Say which stream: pages, users"):
        found.to_polars()
    with pytest.raises(SetupError, match="did you mean 'pages'"):
        found.to_polars("page")
    with pytest.raises(SetupError, match=r"'printed' went to its sink \(stdout\)"):
        found.to_polars("printed")


def test_sinks_of_files_can_be_read_and_others_not() -> None:
    sinks = (
        SinkSpec("a", "files", {"path": "out/a"}),
        SinkSpec("b", "files", {"path": "s3://b/c"}),
        SinkSpec("c", "stdout", {}),
    )
    found = files_of(PipelineSpec("p", (), (), sinks, "/here"), "/here")
    assert found == {"a": StreamFiles(Path("/here/out/a"), "jsonl"), "b": "files", "c": "stdout"}


def test_a_result_says_how_it_ended() -> None:
    assert repr(result()) == "<RunResult finished: 2 records in, 2 out>"


def test_the_type_of_a_csv_column_is_that_of_all_its_rows(tmp_path: Path) -> None:
    lines = ["n", *map(str, range(200)), "x1"]
    (tmp_path / "part-a-1.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "part-a-2.csv").write_text("n\n7\n")
    found = StreamFiles(tmp_path, "csv").read()["n"].to_list()
    assert found[-2:] == ["x1", "7"]
    assert len(found) == 202


def test_rows_become_a_dataframe_of_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="a tool of the developers, in requirements.lock")
    ROWS.write_ndjson(tmp_path / "part-a-1.jsonl")
    frame = result(a=StreamFiles(tmp_path, "jsonl")).to_pandas()
    pandas.testing.assert_frame_equal(frame, pandas.DataFrame({"page": ["a", "b"], "n": [1, 2]}))


def test_without_pandas_it_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SetupError, match="pip install pandas"):
        result(a=StreamFiles(tmp_path, "jsonl")).to_pandas()
