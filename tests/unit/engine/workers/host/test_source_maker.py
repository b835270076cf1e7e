"""Which partitions a shard of a source reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.sources.base import Partition, Reader, Source
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.engine.workers.host.source_maker import SourceMaker
from millwheel.language.spec.pipelines import load_pipeline

PIPELINE = """pipeline: p
streams: {hits: {source: {files: {path: in, format: jsonl}}, timestamp: at}}
computations: {all: {input: hits, filter: n > 0, output: all}}
sinks: {all: {files: {path: out}}}
"""
THERE, BEFORE, END = [Partition("there")], [Partition("before")], [Partition("end")]


class Folder(Source):
    def __init__(self, bounded: bool) -> None:
        self.bounded = bounded

    def partitions(self) -> Sequence[Partition]:
        return THERE

    def open(self, partition: Partition) -> Reader:
        raise AssertionError(partition)


def maker(tmp_path: Path, source: Source, **outside: Any) -> SourceMaker:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    made: Any = lambda *_: source  # noqa: E731
    factories = Factories(made, made, **outside)
    assembly = Assembly(load_pipeline(tmp_path / "p.yaml"), str(tmp_path), None, factories)  # type: ignore[arg-type]
    return assembly._sources


@pytest.mark.parametrize(
    ("bounded", "outside", "read"),
    [
        (False, {}, THERE),
        (False, {"ends": {"hits": END}}, END),
        (True, {"listed": lambda stream, source: BEFORE}, BEFORE),
        (True, {"listed": lambda stream, source: BEFORE, "ends": {"hits": END}}, BEFORE),
    ],
)
def test_what_is_read_was_there_when_the_run_began_or_is_there_now(
    tmp_path: Path, bounded: bool, outside: dict[str, Any], read: list[Partition]
) -> None:
    made = maker(tmp_path, Folder(bounded), **outside)
    stream = made.spec.stream("hits")
    assert made._partitions(stream, made.built(stream))() == read


def test_a_bounded_source_whose_partitions_lie_in_the_root_needs_the_file(tmp_path: Path) -> None:
    made = maker(tmp_path, Folder(True))
    stream = made.spec.stream("hits")
    with pytest.raises(FileNotFoundError):
        made._partitions(stream, made.built(stream))
