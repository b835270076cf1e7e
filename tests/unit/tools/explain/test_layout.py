"""The layered layout: nothing overlaps, arrows run downwards, and the same graph gives the same
drawing."""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.tools.explain.layout import Laid, LayoutCell, Size, lay_out
from millwheel.tools.explain.picture import Picture
from tests.unit.tools.explain.test_picture import REPO, example, tree_text

Edges = list[tuple[str, str]]
GAP = Size(20, 15)


def laid(nodes: list[str], edges: Edges) -> Laid:
    sizes = {
        name: Size(60 + 40 * (number % 3), 40 + 25 * (number % 2))
        for number, name in enumerate(nodes)
    }
    return lay_out(sizes, edges, [Size(30 + 5 * (n % 4), 20) for n in range(len(edges))], GAP, 10)


def overlap(a: LayoutCell, b: LayoutCell) -> bool:
    across = abs(a.x - b.x) < (a.size.width + b.size.width) / 2 - 0.01
    return across and abs(a.y - b.y) < (a.size.height + b.size.height) / 2 - 0.01


def crossings(found: Laid) -> int:
    """Of the pieces between two layers, how many cross."""
    pieces = [(a, b) for way in found.ways for a, b in pairwise(way) if a.layer < b.layer]
    return sum(
        (a.x - c.x) * (b.x - d.x) < 0
        for (a, b), (c, d) in combinations(pieces, 2)
        if a.layer == c.layer
    )


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], Edges]:
    nodes = [f"n{number}" for number in range(draw(st.integers(1, 9)))]
    pairs = st.tuples(st.sampled_from(nodes), st.sampled_from(nodes))
    return nodes, draw(st.lists(pairs, max_size=12))


@given(graphs())
@settings(max_examples=150, deadline=None)
def test_nothing_overlaps_and_all_lies_within_the_drawing(graph: tuple[list[str], Edges]) -> None:
    found = laid(*graph)
    cells = [*found.nodes.values(), *found.labels]
    assert not any(overlap(a, b) for a, b in combinations(cells, 2))
    for cell in cells:
        assert cell.x - cell.size.width / 2 >= 0
        assert cell.x + cell.size.width / 2 <= found.size.width + 0.01
        assert cell.y + cell.size.height / 2 <= found.size.height + 0.01


@given(graphs())
@settings(max_examples=100, deadline=None)
def test_an_arrow_leads_from_its_source_to_its_target_and_downwards_unless_it_closes_a_circle(
    graph: tuple[list[str], Edges],
) -> None:
    nodes, edges = graph
    found = laid(nodes, edges)
    for (a, b), way, up in zip(edges, found.ways, found.upward, strict=True):
        assert (way[0], way[-1]) == (found.nodes[a], found.nodes[b])
        assert up == (found.nodes[a].y >= found.nodes[b].y) or a == b
    if all(int(a[1:]) < int(b[1:]) for a, b in edges):
        assert not any(found.upward)


@given(graphs())
@settings(max_examples=20, deadline=None)
def test_the_same_graph_gives_the_same_drawing(graph: tuple[list[str], Edges]) -> None:
    one, two = laid(*graph), laid(*graph)
    assert [(c.x, c.y) for c in one.nodes.values()] == [(c.x, c.y) for c in two.nodes.values()]


@pytest.mark.parametrize(
    "edges",
    [
        [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")],
        [("a", "x"), ("b", "y"), ("a", "z"), ("b", "z")],
        [("o", "m"), ("p", "m"), ("o", "s"), ("m", "t"), ("m", "u"), ("q", "r"), ("r", "t")],
        [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("b", "d")],
    ],
)
def test_what_can_be_drawn_without_crossings_is(edges: Edges) -> None:
    nodes = sorted({name for edge in edges for name in edge})
    assert crossings(laid(nodes, edges)) == 0


def test_a_chain_is_straight() -> None:
    found = laid(["a", "b", "c"], [("a", "b"), ("b", "c")])
    assert len({round(cell.x, 1) for cell in [*found.nodes.values(), *found.labels]}) == 1


def test_a_source_stands_just_above_what_it_leads_to() -> None:
    found = laid(["a", "b", "c", "late"], [("a", "b"), ("b", "c"), ("late", "c")])
    assert found.nodes["late"].layer == found.nodes["b"].layer


# tree.py: The picture of a pipeline as a tree.


def test_the_tree_names_every_box_once_and_refers_to_it_elsewhere(shop: Picture) -> None:
    text = tree_text(shop)
    assert text.count("n = sum(n)") == 1
    assert len(re.findall(r"→ sessions +window  \(above\)", text)) == 1
    assert "again → retry  callback  (above)" in text
    assert {line.split()[1] for line in text.splitlines() if line[:1] in "├└"} >= {
        "orders",
        "payments",
        "clicks",
        "all",
    }


def test_the_tree_of_the_page_is_current() -> None:
    page = (REPO / "docs" / "explain.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(.*?)\n```", page, re.DOTALL)
    assert shown == tree_text(example("weblog"))
