"""The plan of faults, the comparison of results, and what cannot be done."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import polars as pl
import pytest

from millwheel.chaos.plan import Fault, Plan, Target
from millwheel.chaos.results import compared
from millwheel.cli.chaos import parse_seconds, parse_targets
from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from millwheel.errors import SetupError
from millwheel.launch.settings import LauncherKind

ALL = (Target.WORKERS, Target.MASTER, Target.INJECTOR)


def test_the_same_seed_gives_the_same_faults() -> None:
    one, again = (list(islice(Plan(ALL, 2.0, True, 7).blows(), 30)) for _ in range(2))
    assert one == again
    assert one != list(islice(Plan(ALL, 2.0, True, 8).blows(), 30))


def test_all_targets_have_their_turn_and_faults_come_as_often_as_asked() -> None:
    blows = list(islice(Plan(ALL, 2.0, False, 1).blows(), 300))
    assert Counter(blow.target for blow in blows) == dict.fromkeys(ALL, 100)
    assert {blow.fault for blow in blows} == {Fault.KILL}
    assert 1.8 < sum(blow.after_s for blow in blows) / 300 < 2.2


def test_pauses_are_for_processes_of_this_project_and_end() -> None:
    blows = list(islice(Plan((*ALL, Target.ZOOKEEPER), 1.0, True, 1).blows(), 400))
    paused = [blow for blow in blows if blow.fault is Fault.PAUSE]
    assert 50 < len(paused) < 200
    assert all(0 < blow.lasts_s <= 20 and blow.target is not Target.ZOOKEEPER for blow in paused)


def test_workers_alone_are_cut_off_and_joined_again() -> None:
    blows = list(islice(Plan(ALL, 1.0, True, 1, partitions=True).blows(), 600))
    cut = [blow for blow in blows if blow.fault is Fault.PARTITION]
    assert 40 < len(cut) < 100
    assert all(0 < blow.lasts_s <= 20 and blow.target is Target.WORKERS for blow in cut)
    of_workers = {blow.fault for blow in blows if blow.target is Target.WORKERS}
    assert of_workers == {Fault.KILL, Fault.PAUSE, Fault.PARTITION}


def spec_of(folder: Path, run: str, *formats: str) -> PipelineSpec:
    sinks = tuple(
        SinkSpec(f"out_{form}", "files", {"path": f"{run}/{form}", "format": form}, "p.yaml:9") for form in formats
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
    with pytest.raises(SetupError, match=r"p.yaml:9: the sink of out_jsonl is .*Put \{run\} into its path"):
        compared(spec_of(tmp_path, "same", "jsonl"), spec_of(tmp_path, "same", "jsonl"))


def test_without_files_there_is_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no sink of kind `files`"):
        compared(spec_of(tmp_path, "calm"), spec_of(tmp_path, "chaos"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("workers,masters", "--kill masters: there is no such target; there are workers, executors"),
        ("", "--kill names nothing"),
        ("executors", "only --launcher spark has executors"),
    ],
)
def test_targets_that_are_none_are_named(text: str, expected: str) -> None:
    with pytest.raises(SetupError, match=expected):
        parse_targets(text, LauncherKind.PROCESSES)


def test_a_partition_is_a_fault_of_workers() -> None:
    with pytest.raises(SetupError, match="--partition cuts workers off"):
        parse_targets("master", LauncherKind.PROCESSES, partition=True)
    assert parse_targets("workers", LauncherKind.PROCESSES, partition=True) == (Target.WORKERS,)


def test_targets_and_durations_are_read() -> None:
    assert parse_targets("workers, executors,workers", LauncherKind.SPARK) == (Target.WORKERS, Target.EXECUTORS)
    assert parse_seconds("1500ms", "--every") == 1.5
    with pytest.raises(SetupError, match="--every soon"):
        parse_seconds("soon", "--every")
