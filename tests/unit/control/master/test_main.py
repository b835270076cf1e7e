"""What a master is told of the nodes, from the pipeline on the root."""

from __future__ import annotations

from pathlib import Path

from millwheel.control.master.__main__ import demands
from millwheel.control.roots.shipping import ship
from millwheel.core.slices.slots import WIDTH
from millwheel.language.spec import load_pipeline

PIPELINE = """
pipeline: asked
streams:
  events:
    source: {files: {path: "/nowhere/*.jsonl", format: jsonl}}
    timestamp: at
    fields: {at: int, ad: int}
computations:
  clicks:
    input: {events: {key: ad}}
    slices: {every: 10s, keep: 1h}
    aggregate: {n: count}
"""


def test_nodes_of_slices_are_demanded_in_whole_slots_and_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    root = tmp_path / "root"
    root.mkdir()
    ship(tmp_path / "p.yaml", {}, root, load_pipeline(tmp_path / "p.yaml"))
    grains = {demand.name: demand.grain for demand in demands(str(root))}
    assert grains == {"source.events": 1, "clicks": WIDTH, "sink.dead_letters": 1}


def test_each_source_begins_with_another_worker(tmp_path: Path) -> None:
    stream = PIPELINE[PIPELINE.index("  events:") : PIPELINE.index("computations:")]
    both = PIPELINE.replace("computations:", stream.replace("events", "others") + "computations:")
    (tmp_path / "p.yaml").write_text(both)
    root = tmp_path / "root"
    root.mkdir()
    ship(tmp_path / "p.yaml", {}, root, load_pipeline(tmp_path / "p.yaml"))
    turns = {demand.name: demand.turn for demand in demands(str(root))}
    assert sorted(turns[name] for name in ("source.events", "source.others")) == [0, 1]
    assert {turn for name, turn in turns.items() if not name.startswith("source.")} == {0}
