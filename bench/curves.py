"""Curves as an SVG, both axes logarithmic: how figures grow with a size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from bench.tables import number

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 420, 260, 70, 40, 260, 50
_COLORS = ("#1f6f8b", "#c0562b", "#5b8c3a", "#7a4fa3", "#8c6d1f")

Points = Sequence[tuple[float, float]]


def curves(title: str, across: str, lines: Mapping[str, Points]) -> str:
    """One line for each name, with its last value beside it. Values below 0.1 are drawn at 0.1.
    Raises ValueError without points."""
    points = [point for line in lines.values() for point in line]
    if not points:
        raise ValueError(f"{title}: nothing to draw")
    xs, ys = [math.log10(x) for x, _ in points], [_log(y) for _, y in points]
    low = math.floor(min(ys))
    high = max(max(ys) + 0.05, low + 1)
    first, last = min(xs), max(max(xs), min(xs) + 1e-9)

    def at(x: float, y: float) -> tuple[float, float]:
        along = (math.log10(x) - first) / (last - first)
        return _LEFT + along * _WIDTH, _TOP + (high - _log(y)) / (high - low) * _HEIGHT

    parts = _frame(title, across)
    for power in range(low, math.floor(high) + 1):
        _, y_px = at(points[0][0], 10.0**power)
        parts.append(
            f'<line x1="{_LEFT}" y1="{y_px:.1f}" x2="{_LEFT + _WIDTH}" y2="{y_px:.1f}"'
            ' stroke="#e4e8ea"/>'
        )
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y_px + 4:.1f}"'
            f' text-anchor="end">{number(10.0**power)}</text>'
        )
    for x in sorted({x for x, _ in points}):
        x_px, _ = at(x, 10.0**low)
        parts.append(
            f'<text x="{x_px:.1f}" y="{_TOP + _HEIGHT + 18}"'
            f' text-anchor="middle">{number(x)}</text>'
        )
    ends = sorted(lines, key=lambda name: -lines[name][-1][1])
    label_px = -math.inf
    for name in ends:
        color = _COLORS[list(lines).index(name) % len(_COLORS)]
        drawn = [at(x, y) for x, y in lines[name]]
        shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
        parts.append(f'<polyline points="{shape}" fill="none" stroke="{color}" stroke-width="2"/>')
        label_px = max(drawn[-1][1] + 4, label_px + 15)  # below the one above
        text = f"{name}: {number(lines[name][-1][1])}"
        parts.append(
            f'<text x="{drawn[-1][0] + 8:.1f}" y="{label_px:.1f}"'
            f' fill="{color}">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _log(value: float) -> float:
    return math.log10(max(value, 0.1))


def _frame(title: str, across: str) -> list[str]:
    width, height = _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + _BOTTOM
    return [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
        ),
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="20" font-weight="bold">{escape(title)}</text>',
        (
            f'<text x="{_LEFT + _WIDTH / 2}" y="{height - 10}"'
            f' text-anchor="middle">{escape(across)}</text>'
        ),
    ]
