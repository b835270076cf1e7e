"""A bar chart as an SVG: the median of each row, with a whisker from the least to the greatest
run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from bench.stats import Spread
from bench.tables import number

_BARS, _RIGHT, _ROW, _BAR, _TOP = 400, 150, 26, 14, 34
_FAR = 50
"""A bar so many times longer than the next one is cut off."""
_LETTER = 7
"""Most letters are narrower, in pixels."""
_OURS, _OTHERS = "#1f6f8b", "#b8c4c9"

Row = tuple[str, Spread]


def bars(title: str, rows: Sequence[Row]) -> str:
    """Longer is more. Rows whose name begins with ``millwheel`` stand out. A row many times longer
    than all others is cut off, with a broken end, so that they can be told apart. Raises ValueError
    without rows."""
    if not rows:
        raise ValueError(f"{title}: nothing to draw")
    per_unit = _BARS / (_most([found for _, found in rows]) or 1.0)
    left = 20 + _LETTER * max(len(name) for name, _ in rows)
    width = max(left + _BARS + _RIGHT, 12 + _LETTER * len(title))
    height = _TOP + _ROW * len(rows) + 10
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
        ),
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="20" font-weight="bold">{escape(title)}</text>',
    ]
    for index, (name, found) in enumerate(rows):
        parts += _bar(name, found, left, _TOP + _ROW * index, per_unit)
    return "\n".join([*parts, "</svg>\n"])


def _bar(name: str, found: Spread, left: int, top: int, per_unit: float) -> list[str]:
    middle = top + _BAR // 2
    color = _OURS if name.startswith("millwheel") else _OTHERS
    if found.median * per_unit > _BARS:
        pieces = [(0.0, 0.85), (0.88, 0.91), (0.94, 0.97)]
        return [
            f'<text x="{left - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>',
            *(
                _rectangle(left + _BARS * begin, top, _BARS * (end - begin), color)
                for begin, end in pieces
            ),
            (
                f'<text x="{left + _BARS + 6:.1f}"'
                f' y="{middle + 4}">{escape(number(found.median))}</text>'
            ),
        ]
    end, low, high = (
        left + value * per_unit for value in (found.median, found.least, found.greatest)
    )
    return [
        f'<text x="{left - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>',
        _rectangle(left, top, max(end - left, 1), color),
        f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke="black"/>',
        (
            f'<text x="{max(end, high) + 6:.1f}"'
            f' y="{middle + 4}">{escape(number(found.median))}</text>'
        ),
    ]


def _rectangle(left: float, top: int, width: float, color: str) -> str:
    return f'<rect x="{left:g}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{color}"/>'


def _most(found: Sequence[Spread]) -> float:
    """What the longest bar stands for, but for those that are cut off."""
    medians = sorted(each.median for each in found)
    longest = next((low for low, high in pairwise(medians) if high > low * _FAR and low), None)
    shown = [each.greatest for each in found if longest is None or each.median <= longest]
    return max(shown)
