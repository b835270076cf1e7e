from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from millwheel.language.spec.pipelines import load_pipeline
from millwheel.tools.ui.layout import Drawing, drawing_of

TEXT = """
    pipeline: drawn
    streams:
      words: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: t}
      counts: {}
    computations:
      count: {input: {words: {key: word}}, output: counts, window: {tumbling: 1m},
        aggregate: {n: count}}
    sinks:
      counts: {stdout: {}}
"""


def drawn(tmp_path: Path) -> Drawing:
    (tmp_path / "p.yaml").write_text(dedent(TEXT))
    return drawing_of(load_pipeline(tmp_path / "p.yaml"))


def test_nodes_are_those_of_the_graph_without_dead_letters(tmp_path: Path) -> None:
    found = drawn(tmp_path)
    assert [(node.name, node.kind) for node in found.nodes] == [
        ("source.words", "source"), ("count", "window"), ("sink.counts", "sink"),
    ]  # fmt: skip
    assert "n = count" in found.nodes[1].lines


def test_arrows_lead_from_the_bottom_of_a_box_to_the_top_of_the_next(tmp_path: Path) -> None:
    found = drawn(tmp_path)
    half = found.node[1] / 2
    by_name = {node.name: node for node in found.nodes}
    assert [(edge.source, edge.target, edge.stream) for edge in found.edges] == [
        ("source.words", "count", "words"), ("count", "sink.counts", "counts"),
    ]  # fmt: skip
    for edge in found.edges:
        assert edge.points[0] == (by_name[edge.source].x, by_name[edge.source].y + half)
        assert edge.points[-1] == (by_name[edge.target].x, by_name[edge.target].y - half)
        assert len(edge.points) % 2 == 0
