"""The picture of Nexmark: how many times Flink's rate ours is, a bar for each query.

    python -m bench nexmark-picture

It is drawn from the table of docs/performance.md, into docs/pictures/nexmark.svg. A column named
``times Flink's`` has the figures.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape

from bench.nexmark.queries import QUERIES
from bench.paths import HOUSE

PAGE = HOUSE / "docs" / "performance.md"
PICTURE = HOUSE / "docs" / "pictures" / "nexmark.svg"
TITLE = "Nexmark: how many times Flink SQL's rate, by query"
_COLUMN = "times Flink's"
_KINDS: Mapping[str, Sequence[str]] = {
    "steps": ("q0", "q1", "q2", "q10", "q14", "q21", "q22"),
    "windows": ("q5", "q7", "q8", "q11", "q12"),
    "change logs": ("q15", "q16", "q17"),
    "joins and rows in order": ("q3", "q4", "q6", "q9", "q13", "q18", "q19", "q20", "q23"),
}
"""The queries by what they need most; one without a figure has no bar."""
_LEFT, _TOP, _HIGH, _RIGHT, _BELOW = 44, 44, 240, 120, 48
_BAR, _STEP, _BETWEEN = 22, 28, 20
_STYLE = """<style>
  svg { font: 12px sans-serif; }
  .page { fill: #ffffff; } text { fill: #1d2529; } .faint { fill: #5b676d; }
  .bar { fill: #1f6f8b; } .behind { fill: #c0562b; }
  .value { paint-order: stroke; stroke: #ffffff; stroke-width: 4; }
  line { stroke: #dfe4e6; } .one { stroke: #1d2529; }
  .mean { stroke: #1d2529; stroke-dasharray: 5 4; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #14191c; } text { fill: #e6ebed; } .faint { fill: #9aa6ac; }
    .bar { fill: #4fa3c0; } .behind { fill: #e08a5f; }
    .value { stroke: #14191c; }
    line { stroke: #2c353a; } .one, .mean { stroke: #e6ebed; }
  }
</style>"""


def main() -> int:
    PICTURE.write_text(drawn(figures(PAGE.read_text(encoding="utf-8"))), encoding="utf-8")
    print(PICTURE)
    return 0


def figures(page: str) -> dict[str, float]:
    """The column of the page's table, by query. Raises ValueError without one."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("|")
    ]
    heads = [row for row in rows if row[0] == "query" and _COLUMN in row]
    if len(heads) != 1:
        raise ValueError(f"{PAGE.name} needs one table of queries with a column {_COLUMN!r}")
    place = heads[0].index(_COLUMN)
    found = {row[0]: row[place] for row in rows if row[0] in QUERIES}
    return {name: float(text) for name, text in found.items() if text}


def drawn(times: Mapping[str, float]) -> str:
    """The picture. A line marks the rate of Flink, another one the geometric mean."""
    kinds = {kind: [name for name in names if name in times] for kind, names in _KINDS.items()}
    most = max(times.values()) * 1.05
    width = _LEFT + _STEP * len(times) + _BETWEEN * len(kinds) + _RIGHT
    height, end = _TOP + _HIGH + _BELOW, width - _RIGHT

    def at(value: float) -> float:
        return _TOP + _HIGH * (1 - value / most)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}">',
        f"<title>{TITLE}</title>",
        _STYLE,
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text x="12" y="22" font-weight="bold">{escape(TITLE)}</text>',
    ]
    for mark in range(0, int(most) + 1, 2):
        parts += [_line("grid", _LEFT, end, at(mark)), _text(_LEFT - 8, at(mark) + 4, mark)]
    left, labels = _LEFT + _BETWEEN / 2, list[str]()
    for kind, names in kinds.items():
        for index, name in enumerate(names):
            bar, *label = _bar(name, times[name], left + _STEP * index, at)
            parts.append(bar)
            labels += label
        middle = left + _STEP * len(names) / 2
        labels.append(_text(middle, _TOP + _HIGH + 38, kind, "middle", "faint"))
        left += _STEP * len(names) + _BETWEEN
    mean = statistics.geometric_mean(times.values())
    for style, value, words in (("one", 1.0, "Flink SQL"), ("mean", mean, f"mean {mean:.2f}")):
        parts += [
            _line(style, _LEFT, end, at(value)),
            _text(end + 8, at(value) + 4, words, "start"),
        ]
    parts += labels  # above the lines
    return "\n".join([*parts, "</svg>\n"])


def _bar(name: str, value: float, left: float, at: Callable[[float], float]) -> list[str]:
    top, middle = at(value), left + _STEP / 2
    style = "bar" if value >= 1 else "behind"
    return [
        f'<rect class="{style}" x="{middle - _BAR / 2:.1f}" y="{top:.1f}" width="{_BAR}"'
        f' height="{at(0) - top:.1f}"/>',
        _text(middle, top - 4, f"{value:.1f}", "middle", "value"),
        _text(middle, _TOP + _HIGH + 18, name, "middle"),
    ]


def _line(style: str, left: float, right: float, y: float) -> str:
    return f'<line class="{style}" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'


def _text(x: float, y: float, words: object, anchor: str = "end", style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


if __name__ == "__main__":
    sys.exit(main())
