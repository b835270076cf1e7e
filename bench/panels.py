"""Small charts beside each other as an SVG, each with lines over time on the same scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDE, _HIGH, _MARGIN, _BETWEEN = 300, 150, 34, 150
_GREY = "#b8c4c9"


@dataclass(frozen=True, slots=True)
class Line:
    """Values at equal distances, of which the last is at ``end``: 1 is the right edge."""

    values: Sequence[float]
    color: str
    dotted: bool = False
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Values above ``most`` are cut off; ``mark`` has a line of its own. ``across`` says what the
    right edge is."""

    most: float
    mark: float
    across: str


def panels(
    title: str,
    charts: Mapping[str, Sequence[Line]],
    scale: Scale | Mapping[str, Scale],
    legend: Mapping[str, str],
) -> str:
    """Two in a row, all on one scale or each on its own. ``legend``: colours by what they mean; a
    colour that is empty has no line."""
    rows = (len(charts) + 1) // 2
    width, height = 2 * (_WIDE + _MARGIN) + 20, rows * (_HIGH + 2 * _MARGIN) + 24
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
        ),
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for index, (name, lines) in enumerate(charts.items()):
        left, top = (
            _MARGIN + index % 2 * (_WIDE + _MARGIN),
            _MARGIN + index // 2 * (_HIGH + 2 * _MARGIN),
        )
        parts += _panel(name, lines, scale if isinstance(scale, Scale) else scale[name], left, top)
    y = height - 12
    for index, (meaning, color) in enumerate(legend.items()):
        x = _MARGIN + min(_BETWEEN, (width - _MARGIN) // len(legend)) * index
        if color:
            parts.append(
                f'<line x1="{x}" y1="{y - 4}" x2="{x + 20}" y2="{y - 4}" stroke="{color}"'
                ' stroke-width="2"/>'
            )
        parts.append(f'<text x="{x + 26 * bool(color)}" y="{y}">{escape(meaning)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(name: str, lines: Sequence[Line], scale: Scale, left: int, top: int) -> list[str]:
    bottom, mark = top + _HIGH, top + _HIGH - _HIGH * scale.mark / scale.most
    parts = [
        f'<text x="{left}" y="{top - 10}" font-weight="bold">{escape(name)}</text>',
        (
            f'<rect x="{left}" y="{top}" width="{_WIDE}" height="{_HIGH}" fill="none"'
            f' stroke="{_GREY}"/>'
        ),
        f'<line x1="{left}" y1="{mark}" x2="{left + _WIDE}" y2="{mark}" stroke="{_GREY}"/>',
        f'<text x="{left - 4}" y="{mark + 4}" text-anchor="end">{scale.mark:g}</text>',
        f'<text x="{left - 4}" y="{top + 10}" text-anchor="end">{scale.most:g}</text>',
        (
            f'<text x="{left + _WIDE}" y="{bottom + 14}"'
            f' text-anchor="end">{escape(scale.across)}</text>'
        ),
    ]
    for line in lines:
        step = _WIDE * line.end / max(len(line.values) - 1, 1)
        points = [
            f"{left + step * index:.1f},{bottom - _HIGH * min(value, scale.most) / scale.most:.1f}"
            for index, value in enumerate(line.values)
        ]
        dotted = ' stroke-dasharray="2 3" stroke-width="2"' if line.dotted else ""
        parts.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{line.color}"{dotted}/>'
        )
    return parts
