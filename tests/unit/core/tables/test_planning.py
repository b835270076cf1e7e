"""The plan of a stream of change events."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.control.savepoints.blueprint import blueprint_of
from millwheel.control.savepoints.compatibility import compare, worst
from millwheel.control.savepoints.rules import Compatibility
from millwheel.core.pipeline.graph import build_graph, retracting_streams
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.core.pipeline.work import TableSpec
from millwheel.core.tables.planning import untabled
from millwheel.language.spec import load_pipeline

CHANGES = """
pipeline: p
streams:
  rows:
    source: {kafka: {brokers: "b:1", topics: [t], key_field: k, format: FORMAT}}
    timestamp: ts
    id: lsn
    fields: {id: int}
sinks: {rows: {files: {path: out, mode: upsert, by: id}}}
"""


def spec_of(folder: Path, form: str) -> PipelineSpec:
    (folder / "p.yaml").write_text(CHANGES.replace("FORMAT", form))
    return load_pipeline(folder / "p.yaml")


@pytest.mark.parametrize("form", ["debezium", "{debezium: {add: {at: ts_ms}, key: id}}"])
def test_a_table_stands_behind_a_source_of_change_events(form: str, tmp_path: Path) -> None:
    spec = spec_of(tmp_path, form)
    [events, rows], [table] = spec.streams, spec.computations
    assert (events.name, events.id, rows.name, rows.source) == ("events.rows", "", "rows", None)
    plain = form == "debezium"
    assert table.work == TableSpec(
        "rows", () if plain else ("id",), ("k",) if plain else ("at", "k")
    )
    assert "rows" in retracting_streams(spec)
    feeders = build_graph(spec).feeders
    assert (feeders["table.rows"], feeders["sink.rows"]) == (
        ("source.events.rows",),
        ("table.rows",),
    )


def test_tests_push_rows_without_a_table(tmp_path: Path) -> None:
    spec = untabled(spec_of(tmp_path, "debezium"))
    assert ([stream.name for stream in spec.streams], spec.computations) == (["rows"], ())


def test_other_formats_have_no_table(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(CHANGES.replace("FORMAT", "json"))
    assert load_pipeline(tmp_path / "p.yaml").computations == ()


def test_a_savepoint_without_the_table_is_refused_whose_rows_would_count_again(
    tmp_path: Path,
) -> None:
    spec = spec_of(tmp_path, "debezium")
    changes = compare(blueprint_of(untabled(spec)), blueprint_of(spec))
    assert worst(changes) is Compatibility.REFUSED
    [refused] = [each for each in changes if each.verdict is Compatibility.REFUSED]
    assert (refused.node, "on a new root" in refused.sentence) == ("table.rows", True)
    assert compare(blueprint_of(spec), blueprint_of(spec)) == []
    named = spec_of(tmp_path, "{debezium: {key: [id]}}")
    assert worst(compare(blueprint_of(spec), blueprint_of(named))) is Compatibility.REFUSED, (
        "its state has other keys"
    )
