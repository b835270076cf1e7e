"""The positions of nodes and arrows on the page: the layout of ``millwheel explain``, with room for
figures. Pure."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec
from millwheel.tools.explain.layout import Laid, Size, lay_out
from millwheel.tools.explain.picture import BoxKind, Picture, picture_of

_NODE = Size(236, 92)
_LABEL = Size(132, 30)
_GAP = Size(28, 24)
_MARGIN = 16.0  # pixels around the graph
_HIDDEN = (BoxKind.QUERY, BoxKind.DEAD_LETTERS)


class DrawnNode(msgspec.Struct, frozen=True):
    """A node: its name, kind (source, window, callback, steps, enrich, sink), title, description,
    and the middle of its box (pixels). ``where`` is its line in the pipeline file."""

    name: str
    kind: str
    title: str
    lines: tuple[str, ...]
    where: str
    x: float
    y: float


class DrawnEdge(msgspec.Struct, frozen=True):
    """A stream from one node to another. ``points`` lead from box to box; ``label`` is the position
    of its figures."""

    source: str
    target: str
    stream: str
    key: str
    points: tuple[tuple[float, float], ...]
    label: tuple[float, float]


class Drawing(msgspec.Struct, frozen=True):
    """The graph. All nodes are ``node`` (width, height) large."""

    width: float
    height: float
    node: tuple[float, float]
    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]


def drawing_of(spec: PipelineSpec) -> Drawing:
    """The drawing of a pipeline, without dead letters and queries, which have lists of their
    own."""
    picture = picture_of(spec)
    boxes = [
        box
        for box in picture.boxes
        if box.kind not in _HIDDEN and box.name != f"sink.{DEAD_LETTERS}"
    ]
    names = {box.name for box in boxes}
    arrows = [arrow for arrow in picture.arrows if arrow.source in names and arrow.target in names]
    shown = Picture(picture.title, tuple(boxes), tuple(arrows))
    ends = [(arrow.source, arrow.target) for arrow in arrows]
    laid = lay_out(
        dict.fromkeys([box.name for box in boxes], _NODE), ends, [_LABEL] * len(ends), _GAP, _MARGIN
    )
    nodes = tuple(
        DrawnNode(
            box.name,
            box.kind.value,
            box.title,
            box.lines,
            box.where,
            laid.nodes[box.name].x,
            laid.nodes[box.name].y,
        )
        for box in shown.boxes
    )
    edges = tuple(
        DrawnEdge(
            arrow.source,
            arrow.target,
            arrow.stream,
            arrow.key,
            _points(laid, number),
            _label(laid, number),
        )
        for number, arrow in enumerate(arrows)
    )
    return Drawing(laid.size.width, laid.size.height, (_NODE.width, _NODE.height), nodes, edges)


def _points(laid: Laid, number: int) -> tuple[tuple[float, float], ...]:
    """The ends of each stretch of an arrow, from the bottom of its source to the top of its
    target."""
    points = []
    up = laid.upward[number]
    for a, b in pairwise(laid.ways[number]):
        half_a, half_b = a.size.height / 2, b.size.height / 2
        points += (
            [(a.x, a.y - half_a), (b.x, b.y + half_b)]
            if up
            else [(a.x, a.y + half_a), (b.x, b.y - half_b)]
        )
    return tuple(points)


def _label(laid: Laid, number: int) -> tuple[float, float]:
    return laid.labels[number].x, laid.labels[number].y
