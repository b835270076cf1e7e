from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from millwheel import Computation, FileSink, GeneratorSource, InjectionSource, Pipeline, ValueState
from millwheel.errors import PipelineError
from millwheel.language.spec import load_pipeline
from millwheel.python.handles.pack import pack
from millwheel.testing import PipelineHarness

LIMIT = 2


class Counting(Computation):
    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.seen.set(self.seen.get() + LIMIT)
        ctx.produce("counted", {"user": ctx.key, "n": self.seen.get()})


def counting() -> Pipeline:
    p = Pipeline("count-things")
    p.read("hits", InjectionSource(), timestamp="t").key_by("user").process(
        Counting, output="counted"
    )
    return p


def packed(pipeline: Pipeline, folder: Path, **kept: Any) -> str:
    return pack(pipeline, pipeline.spec(), kept, folder)


def test_functions_that_no_installed_module_has_travel_by_value(tmp_path: Path) -> None:
    file = packed(counting(), tmp_path)
    with PipelineHarness(file) as harness:
        harness.push("hits", [{"user": "ann", "t": 0}, {"user": "ann", "t": 1}])
        assert harness.take("counted") == [{"user": "ann", "n": 2}, {"user": "ann", "n": 4}]


def test_kept_streams_get_a_sink_and_the_pipeline_itself_does_not_change(tmp_path: Path) -> None:
    pipeline = counting()
    file = packed(pipeline, tmp_path, counted={"path": "/rows", "format": "jsonl"})
    assert [(sink.stream, sink.options["path"]) for sink in load_pipeline(file).sinks] == [
        ("counted", "/rows")
    ]
    assert pipeline.spec().sinks == ()


def test_relative_paths_stay_relative_to_where_the_pipeline_was_written(tmp_path: Path) -> None:
    p = Pipeline("p")
    p.read("load", GeneratorSource(count=1)).write(FileSink("out"))
    [sink] = load_pipeline(packed(p, tmp_path)).sinks
    assert sink.options["path"] == str(Path(__file__).parent / "out")


def test_declared_files_travel_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p = Pipeline("p", ship=[Path(__file__).name])
    p.read("load", GeneratorSource(count=1)).write(FileSink("out"))
    packed(p, tmp_path)
    assert (tmp_path / Path(__file__).name).is_file()


def test_code_that_cannot_travel_is_a_sentence(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(value: Any) -> Any:
        with lock:
            return value

    p = Pipeline("p")
    p.read("load", GeneratorSource(count=1)).map(locked, output="out")
    with pytest.raises(
        PipelineError, match=r"cannot be sent to workers: TypeError: .*lock.*make it inside"
    ):
        packed(p, tmp_path)
