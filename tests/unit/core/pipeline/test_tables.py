"""The plans of streams of change events and of enrichments with copies of a table, and the keys of
copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.control.savepoints.blueprint import blueprint_of
from millwheel.control.savepoints.compatibility import compare, worst
from millwheel.control.savepoints.rules import Compatibility
from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import SPACE
from millwheel.core.pipeline.graph import build_graph, retracting_streams
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec, PipelineSpec
from millwheel.core.pipeline.tables import COPIES, MOST_COPIES, copy_key, copy_keys, untabled
from millwheel.core.pipeline.work import BroadcastSpec, CopiesSpec, EnrichSpec, TableSpec
from millwheel.language.spec.pipelines import load_pipeline

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


PIPELINE = """
pipeline: p
streams:
  users:
    source: {files: {path: u.jsonl, format: jsonl}}
    timestamp: {field: at, unit: us}
    table: {key: id, delete: gone}
  hits: {source: {files: {path: h.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}}
computations:
  e: {input: {hits: {key: who}, users: {key: id}}, enrich: {with: users, broadcast: HOW}, output: e}
sinks: {e: {stdout: {}}}
"""


def spec(tmp_path: Any, how: str) -> Any:
    (tmp_path / "p.yaml").write_text(PIPELINE.replace("HOW", how))
    return load_pipeline(str(tmp_path / "p.yaml"), {})


def test_all_changes_go_to_a_computation_that_sends_them_to_each_copy(tmp_path: Any) -> None:
    planned = spec(tmp_path, "{limit: 2MB, copies: 3}")
    copies, enriched = planned.computations
    of, by = KeySpec(KeyKind.FIELD, ("id",)), KeySpec(KeyKind.FIELD, ("who",))
    assert copies.inputs == (InputSpec("events.users", KeySpec(KeyKind.ALL)),)
    assert copies.work == CopiesSpec("users", of, 3, 2_000_000, upserts=True, delete="gone")
    assert (copies.name, copies.outputs, copies.shards) == ("copies.e", ("copies.e",), 1)
    assert enriched.inputs == (
        InputSpec("hits", KeySpec(KeyKind.RECORD, copies=3)),
        InputSpec("copies.e", KeySpec(KeyKind.RECORD)),
    )
    held = BroadcastSpec(2_000_000, by, copies=3)
    assert enriched.work == EnrichSpec("copies.e", "users", broadcast=held, of="users")
    assert enriched.work.copied
    assert not enriched.work.held
    graph = build_graph(planned)
    assert set(graph.feeders["e"]) == {"source.hits", "copies.e"}
    assert retracting_streams(planned) == set()


def test_there_are_some_copies_where_nobody_says_how_many(tmp_path: Any) -> None:
    copies, _ = spec(tmp_path, "true").computations
    assert copies.work.copies == COPIES


@pytest.mark.parametrize("copies", [2, 3, COPIES, MOST_COPIES])
def test_each_part_of_the_space_has_the_key_of_one_copy(copies: int) -> None:
    found = copy_keys(copies)
    assert [key_hash(own) * copies // SPACE for own in found] == list(range(copies))


def test_keys_of_copies_are_what_state_depends_on() -> None:
    assert copy_keys(2) == (3, 0)
    assert len(set(copy_keys(COPIES))) == COPIES


def test_records_with_one_key_go_to_one_copy_in_the_part_where_the_key_lies() -> None:
    keys = [*range(50), "a", b"b", ("c", 1)]
    found = {key: copy_key(key, 4) for key in keys}
    assert found == {key: copy_key(key, 4) for key in keys}
    assert set(found.values()) == set(copy_keys(4))
    for key, own in found.items():
        assert key_hash(key) * 4 // SPACE == key_hash(own) * 4 // SPACE
