"""Results of a calm run and of one with faults are compared row by row."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from millwheel.errors import SetupError
from millwheel.tools.chaos.results import compared


def spec_of(folder: Path, run: str, *formats: str) -> PipelineSpec:
    sinks = tuple(
        SinkSpec(f"out_{form}", "files", {"path": f"{run}/{form}", "format": form}, "p.yaml:9")
        for form in formats
    )
    return PipelineSpec("p", (), (), sinks, str(folder))


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_rows_are_compared_wherever_in_the_files_they_lie(tmp_path: Path, form: str) -> None:
    runs = {"calm": [["a", "b"], ["b", "c"]], "chaos": [["c"], ["b", "b", "a"]]}
    for run, files in runs.items():
        write(tmp_path / run / form, form, files)
    [found] = compared(spec_of(tmp_path, "calm", form), spec_of(tmp_path, "chaos", form))
    assert (found.rows, found.lost, found.surplus) == (4, 0, 0)


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_lost_and_doubled_rows_are_found(tmp_path: Path, form: str) -> None:
    write(tmp_path / "calm" / form, form, [["a", "b"]])
    write(tmp_path / "chaos" / form, form, [["b", "b"], ["x"]])
    [found] = compared(spec_of(tmp_path, "calm", form), spec_of(tmp_path, "chaos", form))
    assert (found.lost, found.surplus) == (1, 2)
    assert len(found.examples()) == 3


def write(folder: Path, form: str, files: list[list[str]]) -> None:
    folder.mkdir(parents=True)
    for number, values in enumerate(files):
        frame = pl.DataFrame({"n": [1] * len(values), "v": values})
        path = folder / f"part-{number}.{form}"
        if form == "jsonl":
            frame.write_ndjson(path)
        elif form == "csv":
            frame.write_csv(path)
        else:
            frame.write_parquet(path)


def test_two_runs_need_two_places(tmp_path: Path) -> None:
    with pytest.raises(
        SetupError, match=r"p.yaml:9: the sink of out_jsonl is .*Put \{run\} into its path"
    ):
        compared(spec_of(tmp_path, "same", "jsonl"), spec_of(tmp_path, "same", "jsonl"))


def test_without_files_there_is_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no sink of kind `files`"):
        compared(spec_of(tmp_path, "calm"), spec_of(tmp_path, "chaos"))
