from __future__ import annotations

import json
from pathlib import Path

import pytest

from millwheel.control.roots.inputs import (
    changed_inputs,
    ends_file,
    forget_ends,
    has_ends,
    keep_ends,
    keep_inputs,
)
from millwheel.core.pipeline.spec import PipelineSpec, SourceSpec, StreamSpec
from millwheel.errors import SetupError


def spec(folder: Path, *more: StreamSpec) -> PipelineSpec:
    files = SourceSpec("files", {"path": str(folder / "*.jsonl"), "format": "jsonl"})
    return PipelineSpec(
        "p",
        (StreamSpec("hits", files, timestamp="t"), StreamSpec("made"), *more),
        (),
        (),
        str(folder),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"t": 1}\n')
    return tmp_path


def kept(folder: Path) -> list[str]:
    return [
        part["name"] for part in json.loads((folder / "root" / "inputs" / "hits.json").read_text())
    ]


def test_the_partitions_are_kept_from_the_first_run_on(folder: Path) -> None:
    assert keep_inputs(spec(folder), folder / "root")
    first = kept(folder)
    assert [Path(name).name for name in first] == ["a.jsonl", "b.jsonl"]
    assert changed_inputs(spec(folder), folder / "root") == []
    (folder / "c.jsonl").write_text("")
    assert keep_inputs(spec(folder), folder / "root")
    assert kept(folder) == first


def test_a_change_of_the_input_is_told_with_an_example(folder: Path) -> None:
    keep_inputs(spec(folder), folder / "root")
    (folder / "c.jsonl").write_text("")
    (sentence,) = changed_inputs(spec(folder), folder / "root")
    assert "'hits' had 2 partitions" in sentence
    assert "has 3 now" in sentence
    assert "c.jsonl was added" in sentence
    (folder / "c.jsonl").unlink()
    (folder / "a.jsonl").unlink()
    assert "a.jsonl is gone" in changed_inputs(spec(folder), folder / "root")[0]


def test_unbounded_sources_and_injection_have_nothing_to_keep(folder: Path) -> None:
    open_stream = StreamSpec("open", SourceSpec("injection", {}), timestamp="t")
    assert not keep_inputs(spec(folder, open_stream), folder / "root")
    assert [path.name for path in (folder / "root" / "inputs").iterdir()] == ["hits.json"]
    assert changed_inputs(spec(folder, open_stream), folder / "root") == []


def test_a_damaged_list_is_not_trusted(folder: Path) -> None:
    keep_inputs(spec(folder), folder / "root")
    (folder / "root" / "inputs" / "hits.json").write_text("[")
    with pytest.raises(SetupError, match="damaged"):
        changed_inputs(spec(folder), folder / "root")


def test_the_ends_of_what_grows_are_kept_for_a_run_that_ends_there_and_forgotten_by_the_next(
    folder: Path,
) -> None:
    files = SourceSpec(
        "files", {"path": str(folder / "*.jsonl"), "format": "jsonl", "follow": True}
    )
    followed = spec(folder, StreamSpec("grows", files, timestamp="t"))
    root = folder / "root"
    keep_inputs(followed, root)
    assert keep_ends(followed, root)
    assert has_ends(root)
    found = json.loads(ends_file(root, "grows").read_text())
    assert [(Path(part["name"]).name, part["version"][2]) for part in found] == [
        ("a.jsonl", 9),
        ("b.jsonl", 9),
    ]
    forget_ends(root)
    assert not has_ends(root)
    assert not keep_ends(spec(folder), root)


def test_a_source_without_an_end_is_refused(folder: Path) -> None:
    made = StreamSpec("made", SourceSpec("generator", {}), timestamp="ts")
    with pytest.raises(SetupError, match="no run catches up with it"):
        keep_ends(spec(folder, made), folder / "root")
