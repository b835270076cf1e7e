"""A layered layout (Sugiyama's), from top to bottom.

Nodes get layers along the arrows; arrows that would close a cycle are reversed for this step. The
points at which an arrow crosses a layer, and its label, occupy room like nodes. Each layer is
ordered so that few arrows cross, and shifted so that arrows run straight. Everything is
deterministic: the same graph gives the same drawing.

The graphs of pipelines are small, and the pure Python libraries for this are no longer maintained.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_STARTS = 16  # orders from which the layout begins; the best result counts
_SWEEPS = 12  # passes over the layers, which then hardly improve
_SETTLING = 200
"""Sweeps until the cells have found their positions."""
_STRAIGHT = 4.0
"""How hard an arrow resists bending."""


@dataclass(frozen=True, slots=True)
class Size:
    """Width and height."""

    width: float
    height: float


@dataclass(slots=True)
class LayoutCell:
    """Something that takes room in a layer: a node, the label of an edge, or a point that an edge
    passes (``edge`` is its number). ``x`` and ``y`` are its centre."""

    size: Size
    layer: int
    edge: int | None = None
    x: float = 0.0
    y: float = 0.0
    above: list[LayoutCell] = field(default_factory=list, repr=False)
    below: list[LayoutCell] = field(default_factory=list, repr=False)


@dataclass(frozen=True, slots=True)
class Laid:
    """The layout: the cells of nodes by name; per edge the cells it runs through, from its source
    to its target, the one of its label, and whether it runs upwards."""

    nodes: Mapping[str, LayoutCell]
    ways: Sequence[Sequence[LayoutCell]]
    labels: Sequence[LayoutCell]
    upward: Sequence[bool]
    size: Size


def lay_out(
    nodes: Mapping[str, Size],
    edges: Sequence[tuple[str, str]],
    labels: Sequence[Size],
    gap: Size,
    margin: float,
) -> Laid:
    """A layout of nodes and edges; ``labels`` are the sizes of the edges' labels. ``gap`` is the
    distance between neighbours, sideways and downwards (pixels)."""
    upward = _turned(nodes, edges)
    downward = [(b, a) if up else (a, b) for (a, b), up in zip(edges, upward, strict=True)]
    layer = _layers(list(nodes), downward)
    cells = {name: LayoutCell(size, 2 * layer[name]) for name, size in nodes.items()}
    ways, label_cells = [], []
    for number, (a, b) in enumerate(downward):
        way = _way(number, cells[a], cells[b], labels[number], label_at=cells[b].layer - 1)
        label_cells.append(next(cell for cell in way if cell.layer == cells[b].layer - 1))
        ways.append(way[::-1] if upward[number] else way)
    rows = _rows(
        [*cells.values(), *(cell for way in ways for cell in way if cell.edge is not None)]
    )
    _order(rows)
    width = _set_positions(rows, gap.width, margin)
    height = _stack(rows, gap.height, margin)
    return Laid(cells, ways, label_cells, upward, Size(width, height))


# --- layers ---------------------------------------------------------------------------------------


def _turned(nodes: Mapping[str, Size], edges: Sequence[tuple[str, str]]) -> list[bool]:
    """For each edge, whether it leads back to a node that is still being visited, depth first."""
    state = dict.fromkeys(nodes, 0)
    turned = [False] * len(edges)
    after: dict[str, list[tuple[int, str]]] = {name: [] for name in nodes}
    for number, (a, b) in enumerate(edges):
        after[a].append((number, b))
    for start in sorted(nodes, key=lambda name: any(b == name for _, b in edges)):
        stack = [(start, iter(after[start]))] if not state[start] else []
        state[start] = state[start] or 1
        while stack:
            name, rest = stack[-1]
            step = next(rest, None)
            if step is None:
                state[name] = 2
                stack.pop()
            elif state[step[1]] == 1:
                turned[step[0]] = True
            elif state[step[1]] == 0:
                state[step[1]] = 1
                stack.append((step[1], iter(after[step[1]])))
    return turned


def _layers(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Each node below all that lead to it; nodes that nothing leads to stand just above the first
    they lead to."""
    layer = dict.fromkeys(nodes, 0)
    for _ in nodes:
        for a, b in edges:
            if a != b:
                layer[b] = max(layer[b], layer[a] + 1)
    fed = {b for a, b in edges if a != b}
    for name in nodes:
        first = min((layer[b] for a, b in edges if a == name and b != a), default=None)
        if name not in fed and first is not None:
            layer[name] = first - 1
    return layer


def _way(
    number: int, start: LayoutCell, end: LayoutCell, label: Size, label_at: int
) -> list[LayoutCell]:
    """The cells of an edge, linked to each other."""
    way = [start]
    for layer in range(start.layer + 1, end.layer):
        way.append(LayoutCell(label if layer == label_at else Size(2, 0), layer, number))
    if start is end:
        way.append(LayoutCell(label, label_at, number))
    way.append(end)
    for a, b in pairwise(way):
        if a.layer < b.layer:
            a.below.append(b)
            b.above.append(a)
    return way


def _rows(cells: Sequence[LayoutCell]) -> list[list[LayoutCell]]:
    rows: list[list[LayoutCell]] = [
        [] for _ in range(max((cell.layer for cell in cells), default=0) + 2)
    ]
    for cell in cells:
        rows[cell.layer].append(cell)
    return rows


# --- order within layers --------------------------------------------------------------------------


def _order(rows: list[list[LayoutCell]]) -> None:
    """The order with the fewest crossings among those found from the order of the pipeline and from
    a fixed set of shuffled orders."""
    first = [list(row) for row in rows]
    best = [list(row) for row in first]
    for start in range(_STARTS):
        rows[:] = [list(row) for row in first]
        if start:
            chance = random.Random(start)
            for row in rows:
                chance.shuffle(row)
        _improve(rows)
        if _crossings(rows) < _crossings(best) or start == 0:
            best = [list(row) for row in rows]
        if not _crossings(best):
            break
    rows[:] = best


def _improve(rows: list[list[LayoutCell]]) -> None:
    """Sort every layer by the middle of its neighbours, down and up, exchange neighbours while that
    helps, and keep the order with the fewest crossings."""
    best, best_rows = _crossings(rows), [list(row) for row in rows]
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        for row in rows if downwards else rows[::-1]:
            _sort(row, rows, downwards)
        _exchange(rows)
        crossings = _crossings(rows)
        if crossings < best:
            best, best_rows = crossings, [list(row) for row in rows]
        if not best:
            break
    rows[:] = best_rows


def _sort(row: list[LayoutCell], rows: list[list[LayoutCell]], downwards: bool) -> None:
    if not row:
        return
    rank = {id(cell): number for each in rows for number, cell in enumerate(each)}

    def middle(cell: LayoutCell) -> float:
        neighbours = cell.above if downwards else cell.below
        if not neighbours:
            return float(rank[id(cell)])
        return sum(rank[id(other)] for other in neighbours) / len(neighbours)

    row.sort(key=middle)


def _exchange(rows: list[list[LayoutCell]]) -> None:
    """Exchange neighbours in a layer as long as that takes crossings away."""
    crossings, better = _crossings(rows), True
    while better and crossings:
        better = False
        for row in rows:
            for left in range(len(row) - 1):
                row[left], row[left + 1] = row[left + 1], row[left]
                after = _crossings(rows)
                if after < crossings:
                    crossings, better = after, True
                else:
                    row[left], row[left + 1] = row[left + 1], row[left]


def _crossings(rows: list[list[LayoutCell]]) -> int:
    count = 0
    for row, lower in pairwise(rows):
        rank = {id(cell): number for number, cell in enumerate(lower)}
        ends = [
            rank[id(below)]
            for cell in row
            for below in sorted(cell.below, key=lambda c: rank[id(c)])
        ]
        count += sum(a > b for number, a in enumerate(ends) for b in ends[number + 1 :])
    return count


# --- coordinates ----------------------------------------------------------------------------------


def _set_positions(rows: list[list[LayoutCell]], gap: float, margin: float) -> float:
    """x of every cell; the width of all. Layer by layer the springs between neighbours come to
    rest, again and again, which only ever loosens them."""
    for row in rows:
        _pack(row, [(0.0, 1.0)] * len(row), gap)
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            _pack(
                row,
                [_desired(cell, cell.above if sweep % 2 == 0 else cell.below) for cell in row],
                gap,
            )
    for _ in range(_SETTLING):
        for row in rows:
            _pack(row, [_desired(cell, cell.above + cell.below) for cell in row], gap)
    cells = [cell for row in rows for cell in row]
    left = min((cell.x - cell.size.width / 2 for cell in cells), default=0.0)
    for cell in cells:
        cell.x += margin - left
    return max((cell.x + cell.size.width / 2 for cell in cells), default=0.0) + margin


def _desired(cell: LayoutCell, near: Sequence[LayoutCell]) -> tuple[float, float]:
    """The position to which neighbours pull a cell, and the strength. A cell without neighbours
    stays unless others push it."""
    pulls = [
        _spring(*((other, cell) if other.layer < cell.layer else (cell, other))) for other in near
    ]
    if not pulls:
        return cell.x, 0.01
    return sum(pull * other.x for pull, other in zip(pulls, near, strict=True)) / sum(pulls), sum(
        pulls
    )


def _spring(upper: LayoutCell, lower: LayoutCell) -> float:
    """Labels are drawn more strongly towards the target of their arrow than towards its source;
    points where an arrow crosses a layer are drawn to a straight line."""
    if upper.edge is None:
        return 1.0
    return _STRAIGHT if lower.edge is None else 2 * _STRAIGHT


def _pack(row: list[LayoutCell], desired: list[tuple[float, float]], gap: float) -> None:
    """As near to the desired positions as possible, in order, without overlap: the weighted least
    squares under these bounds, by pooling neighbours that push each other."""
    if not row:
        return
    offsets = [0.0]
    for a, b in pairwise(row):
        offsets.append(offsets[-1] + (a.size.width + b.size.width) / 2 + gap)
    blocks: list[tuple[float, float, int]] = []
    for (at, pull), offset in zip(desired, offsets, strict=True):
        mean, weight, count = at - offset, pull, 1
        while blocks and blocks[-1][0] > mean:
            other, more, size = blocks.pop()
            mean = (other * more + mean * weight) / (more + weight)
            weight, count = more + weight, size + count
        blocks.append((mean, weight, count))
    starts = [mean for mean, _, count in blocks for _ in range(count)]
    for cell, start, offset in zip(row, starts, offsets, strict=True):
        cell.x = start + offset


def _stack(rows: list[list[LayoutCell]], gap: float, margin: float) -> float:
    """y of every cell, the tops of a layer's nodes in line; the height of all."""
    top = margin
    for number, row in enumerate(rows):
        height = max((cell.size.height for cell in row), default=0.0)
        for cell in row:
            cell.y = top + (
                cell.size.height / 2 if number % 2 == 0 and cell.edge is None else height / 2
            )
        top += height + (gap if row else 0)
    return top - gap + margin
