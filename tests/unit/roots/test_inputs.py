from __future__ import annotations

import json
from pathlib import Path

import pytest

from millwheel.core.pipeline.spec import PipelineSpec, SourceSpec, StreamSpec
from millwheel.errors import SetupError
from millwheel.roots.inputs import changed_inputs, keep_inputs


def spec(folder: Path, *more: StreamSpec) -> PipelineSpec:
    files = SourceSpec("files", {"path": str(folder / "*.jsonl"), "format": "jsonl"})
    return PipelineSpec("p", (StreamSpec("hits", files, timestamp="t"), StreamSpec("made"), *more), (), (), str(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"t": 1}\n')
    return tmp_path


def kept(folder: Path) -> list[str]:
    return [part["name"] for part in json.loads((folder / "root" / "inputs" / "hits.json").read_text())]


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
