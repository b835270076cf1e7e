"""The plan of an enrichment with copies of a table, and the keys of copies."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import SPACE
from millwheel.core.pipeline.graph import build_graph, retracting_streams
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import BroadcastSpec, CopiesSpec, EnrichSpec
from millwheel.core.tables.copies import COPIES, MOST_COPIES, copy_key, copy_keys
from millwheel.language.spec.pipelines import load_pipeline

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
