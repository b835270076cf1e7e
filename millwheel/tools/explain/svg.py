"""The picture as an SVG.

Boxes and labels have opaque backgrounds, and lines are of a medium grey, so the drawing is readable
on light and dark pages. Texts use a fixed-width font, so their size is computed without loading it.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from textwrap import wrap

from millwheel.tools.explain.layout import Laid, LayoutCell, Size, lay_out
from millwheel.tools.explain.picture import Arrow, Box, BoxKind, Picture

_FONT = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_TEXT, _SMALL, _TITLE = 12.0, 10.5, 14.0
_ADVANCE = 0.605
"""Width of a character of the widest usual fixed-width font, in font sizes."""
_LINE = 17.0  # pixels of a line of text
_PAD = 12.0  # pixels between the edge of a box and its text
_COLUMNS = 44  # characters of a line, then it wraps
_STRIPE = 5.0  # pixels of the coloured edge of a box
_GAP = Size(26, 25)
_MARGIN = 14.0  # pixels around the picture
_HEAD = 30.0  # pixels above the picture for its title
_GREY, _INK, _FAINT, _CARD, _EDGE, _LABEL = (
    "#7d8794",
    "#1c2330",
    "#5b6675",
    "#ffffff",
    "#c3cad4",
    "#eef1f5",
)
_COLOURS = {
    BoxKind.SOURCE: "#1a7f4b",
    BoxKind.WINDOW: "#8250c4",
    BoxKind.CHANGE_LOG: "#8250c4",
    BoxKind.CALLBACK: "#2563c9",
    BoxKind.STEPS: "#0e7c86",
    BoxKind.ENRICH: "#0e7c86",
    BoxKind.JOIN: "#0e7c86",
    BoxKind.ORDERED: "#0e7c86",
    BoxKind.SINK: "#b35900",
    BoxKind.DEAD_LETTERS: "#c0303b",
    BoxKind.QUERY: "#57606a",
}


def svg_of(picture: Picture) -> str:
    """A whole SVG document."""
    cards = {box.name: _Card.of(box) for box in picture.boxes}
    labels = [_Label.of(arrow) for arrow in picture.arrows]
    laid = lay_out(
        {name: card.size for name, card in cards.items()},
        [(arrow.source, arrow.target) for arrow in picture.arrows],
        [label.size for label in labels],
        _GAP,
        _MARGIN,
    )
    width = max(laid.size.width, 2 * _MARGIN + len(picture.title) * _TITLE * _ADVANCE)
    height = laid.size.height + _HEAD
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}"'
            f' width="{_n(width)}" height="{_n(height)}" role="img" font-family="{_FONT}"'
            f' font-size="{_n(_TEXT)}">'
        ),
        f"<title>The pipeline {escape(picture.title)}</title>",
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8"'
            ' markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L8,4 L0,8'
            f' z" fill="{_GREY}"/></marker></defs>'
        ),
        (
            f'<text x="{_n(_MARGIN)}" y="24" font-size="{_n(_TITLE + 2)}" font-weight="bold"'
            f' fill="{_GREY}">{escape(picture.title)}</text>'
        ),
        f'<g transform="translate(0 {_n(_HEAD)})">',
        *(_line(laid, number) for number in range(len(labels))),
        *(label.drawn(cell) for label, cell in zip(labels, laid.labels, strict=True)),
        *(card.drawn(laid.nodes[name]) for name, card in cards.items()),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _line(laid: Laid, number: int) -> str:
    """An arrow through its cells: straight within a layer, bent between layers."""
    way = laid.ways[number]
    up = laid.upward[number]
    path = ""
    for a, b in pairwise(way):
        start, end = (
            (a.y - a.size.height / 2, b.y + b.size.height / 2) if up else (_bottom(a), _top(b))
        )
        path += f" L{_n(a.x)},{_n(start)}" if path else f"M{_n(a.x)},{_n(start)}"
        middle = (start + end) / 2
        path += f" C{_n(a.x)},{_n(middle)} {_n(b.x)},{_n(middle)} {_n(b.x)},{_n(end)}"
    dashes = ' stroke-dasharray="5 4"' if up else ""
    return (
        f'<path d="{path}" fill="none" stroke="{_GREY}" stroke-width="1.6"{dashes}'
        ' marker-end="url(#tip)"/>'
    )


def _top(cell: LayoutCell) -> float:
    return cell.y - cell.size.height / 2


def _bottom(cell: LayoutCell) -> float:
    return cell.y + cell.size.height / 2


@dataclass(frozen=True, slots=True)
class _Card:
    """A box with its wrapped lines."""

    box: Box
    lines: tuple[str, ...]
    size: Size

    @classmethod
    def of(cls, box: Box) -> _Card:
        lines = [part for line in box.lines for part in _broken(line)]
        head = len(box.title) * _TITLE * _ADVANCE + 18 + len(box.kind.value) * _SMALL * _ADVANCE
        widths = [
            head,
            *(len(line) * _TEXT * _ADVANCE for line in lines),
            len(box.note) * _SMALL * _ADVANCE,
        ]
        height = 2 * _PAD + _TITLE + (4 + len(lines) * _LINE) + (_LINE if box.note else 0)
        return cls(box, tuple(lines), Size(max(widths) + 2 * _PAD + _STRIPE, height))

    def drawn(self, cell: LayoutCell) -> str:
        """The card at its position."""
        colour, box = _COLOURS[self.box.kind], self.box
        x, y = cell.x - self.size.width / 2, _top(cell)
        left, right = x + _STRIPE + _PAD, x + self.size.width - _PAD
        base = y + _PAD + _TITLE - 3
        texts = [
            (
                f'<text x="{_n(left)}" y="{_n(base)}" font-size="{_n(_TITLE)}" font-weight="bold"'
                f' fill="{_INK}">{escape(box.title)}</text>'
            ),
            (
                f'<text x="{_n(right)}" y="{_n(base)}" font-size="{_n(_SMALL)}" text-anchor="end"'
                f' fill="{colour}">{box.kind.value}</text>'
            ),
        ]
        for number, line in enumerate(self.lines, 1):
            texts.append(_text(left, base + 4 + number * _LINE, line, _TEXT, _INK))
        if box.note:
            texts.append(
                _text(left, base + 4 + (len(self.lines) + 1) * _LINE, box.note, _SMALL, _FAINT)
            )
        where = f"<title>{escape(box.where)}</title>" if box.where else ""
        rect = (
            f'x="{_n(x)}" y="{_n(y)}" width="{_n(self.size.width)}" height="{_n(self.size.height)}"'
            ' rx="6"'
        )
        stripe = (
            f'x="{_n(x)}" y="{_n(y)}" width="{_n(_STRIPE)}" height="{_n(self.size.height)}"'
            ' rx="2.5"'
        )
        return "\n".join(
            [
                f'<g>{where}<rect {rect} fill="{_CARD}" stroke="{_EDGE}"/>',
                f'<rect {stripe} fill="{colour}"/>',
                *texts,
                "</g>",
            ]
        )


@dataclass(frozen=True, slots=True)
class _Label:
    """The label of an arrow: the stream, and the key below it."""

    stream: str
    key: str
    size: Size

    @classmethod
    def of(cls, arrow: Arrow) -> _Label:
        key = arrow.key if len(arrow.key) <= _COLUMNS else arrow.key[: _COLUMNS - 1] + "…"
        longest = max(len(arrow.stream), len(key))
        return cls(arrow.stream, key, Size(longest * _SMALL * _ADVANCE + 14, 36 if key else 20))

    def drawn(self, cell: LayoutCell) -> str:
        """The label at its position, over the line."""
        x, y = cell.x - self.size.width / 2, cell.y - self.size.height / 2
        rect = (
            f'x="{_n(x)}" y="{_n(y)}" width="{_n(self.size.width)}" height="{_n(self.size.height)}"'
            ' rx="5"'
        )
        middle = f'x="{_n(cell.x)}" text-anchor="middle" font-size="{_n(_SMALL)}"'
        parts = [
            f'<rect {rect} fill="{_LABEL}" stroke="{_EDGE}"/>',
            (
                f'<text {middle} y="{_n(y + 14)}" font-weight="bold"'
                f' fill="{_INK}">{escape(self.stream)}</text>'
            ),
        ]
        if self.key:
            parts.append(
                f'<text {middle} y="{_n(y + 29)}" fill="{_FAINT}">{escape(self.key)}</text>'
            )
        return "\n".join(parts)


def _broken(line: str) -> list[str]:
    """A line wrapped at :data:`_COLUMNS`; continuation lines are indented."""
    return wrap(line, _COLUMNS, subsequent_indent="  ", break_long_words=True) or [""]


def _text(x: float, y: float, text: str, size: float, colour: str) -> str:
    body = escape(text).replace("  ", "\u00a0 ")
    return f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" fill="{colour}">{body}</text>'


def _n(number: float) -> str:
    """A number with one decimal at most."""
    return f"{number:.1f}".removesuffix(".0")
