"""Results of a calm run and of one with faults are compared row by row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from millwheel.errors import SetupError
from millwheel.tools.chaos.results import compared, free_sinks
from tests.search.script import load


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
        write_frame(frame, folder / f"part-{number}.{form}", form)


def write_frame(frame: pl.DataFrame, path: Path, form: str) -> None:
    if form == "jsonl":
        frame.write_ndjson(path)
    elif form == "csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_of_changes_what_stands_is_compared(tmp_path: Path, form: str) -> None:
    logs = {
        "calm": ["+a", "+b", "-b", "+c"],
        "chaos": ["+x", "-x", "+c", "+a"],
        "bad": ["-b", "+a"],
    }
    for run, log in logs.items():
        frame = pl.DataFrame({"change": [row[0] for row in log], "v": [row[1] for row in log]})
        folder = tmp_path / run / form
        folder.mkdir(parents=True)
        write_frame(frame, folder / f"part-0.{form}", form)

    def spec(run: str) -> PipelineSpec:
        plain = spec_of(tmp_path, run, form)
        sinks = (replace(s, options={**s.options, "mode": "changelog"}) for s in plain.sinks)
        return replace(plain, sinks=tuple(sinks))

    [same] = compared(spec("calm"), spec("chaos"))
    assert (same.rows, same.lost, same.surplus) == (2, 0, 0)
    [other] = compared(spec("calm"), spec("bad"))
    assert (other.lost, other.surplus) == (1, 1)
    assert other.examples()[1].startswith("extra: taken back, and not there")


def test_how_many_versions_are_appended_is_chance() -> None:
    yaml = (
        "pipeline: p\nstreams:\n  hits: {source: {files: {path: in, format: csv}}, timestamp: at}\n"
        "computations:\n  w: {input: {hits: {key: k}}, aggregate: {n: count}, output: w}\n"
        "sinks:\n  w: {files: {path: out, mode: MODE}}\n"
    )
    appended, upserted = (
        free_sinks(load(yaml.replace("MODE", mode)))["w"] for mode in ("append", "upsert")
    )
    assert appended == ("w: it emits what has changed with each bundle",)
    assert upserted == ()


def test_two_runs_need_two_places(tmp_path: Path) -> None:
    with pytest.raises(
        SetupError, match=r"p.yaml:9: the sink of out_jsonl is .*Put \{run\} into its path"
    ):
        compared(spec_of(tmp_path, "same", "jsonl"), spec_of(tmp_path, "same", "jsonl"))


def test_without_files_there_is_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no sink of kind `files`"):
        compared(spec_of(tmp_path, "calm"), spec_of(tmp_path, "chaos"))
