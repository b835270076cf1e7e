"""A bar chart as an SVG: the median of each row, with a whisker from the least to the greatest run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.stats import Spread
from bench.tables import number

_BARS, _RIGHT, _ROW, _BAR, _TOP = 400, 150, 26, 14, 34
_LETTER = 7
"""Most letters are narrower, in pixels."""
_OURS, _OTHERS = "#1f6f8b", "#b8c4c9"

Row = tuple[str, Spread]


def bars(title: str, rows: Sequence[Row]) -> str:
    """Longer is more. Rows whose name begins with ``millwheel`` stand out. Raises ValueError without rows."""
    if not rows:
        raise ValueError(f"{title}: nothing to draw")
    most = max(found.greatest for _, found in rows) or 1.0
    per_unit = _BARS / most
    left = 20 + _LETTER * max(len(name) for name, _ in rows)
    width = max(left + _BARS + _RIGHT, 12 + _LETTER * len(title))
    height = _TOP + _ROW * len(rows) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="20" font-weight="bold">{escape(title)}</text>',
    ]
    for place, (name, found) in enumerate(rows):
        parts += _bar(name, found, left, _TOP + _ROW * place, per_unit)
    return "\n".join([*parts, "</svg>\n"])


def _bar(name: str, found: Spread, left: int, top: int, per_unit: float) -> list[str]:
    middle = top + _BAR // 2
    end, low, high = (left + value * per_unit for value in (found.median, found.least, found.greatest))
    color = _OURS if name.startswith("millwheel") else _OTHERS
    return [
        f'<text x="{left - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>',
        f'<rect x="{left}" y="{top}" width="{max(end - left, 1):.1f}" height="{_BAR}" fill="{color}"/>',
        f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke="black"/>',
        f'<text x="{max(end, high) + 6:.1f}" y="{middle + 4}">{escape(number(found.median))}</text>',
    ]
