from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.connect.python_objects import load_object
from millwheel.core.formats.codec import stream_decoder
from millwheel.engine.workers.host.grouping import groupings_of
from millwheel.language.spec.pipelines import load_pipeline

PIPELINE = """
pipeline: p
streams: {{events: {{source: {{injection: {{}}}}, timestamp: at}}}}
computations: {{c: {{input: {{events: {{key: k}}}}, {computation}, output: o}}}}
sinks: {{o: stdout}}
"""


def grouped(tmp_path: Path, computation: str) -> list[str]:
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE.format(computation=computation))
    spec = load_pipeline(path)
    found = groupings_of(spec, {}, lambda name: load_object(name, spec.folder), stream_decoder({}))
    assert all(each.columns is None and each.rows is not None for each in found.values())
    return list(found)


@pytest.mark.parametrize(
    ("computation", "names"),
    [
        ("window: {tumbling: 1m}, aggregate: {n: count}", ["c"]),
        ("window: {tumbling: 1m}", []),
        ("window: {session: 1m}, aggregate: {n: count}", []),
        ("window: {tumbling: 1m}, aggregate: {n: {collect: x}}", []),
        ("filter: n > 1", []),
    ],
)
def test_aggregations_that_can_take_groups_have_a_grouping(
    tmp_path: Path, computation: str, names: list[str]
) -> None:
    assert grouped(tmp_path, computation) == names
