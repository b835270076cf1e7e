"""The lateness of streams as a picture: the share of late records by ``max_delay``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from millwheel.core.model.times import duration_text
from millwheel.tools.dev.lateness import Lateness

_WIDTH, _ROW, _HEAD, _LABEL, _BARS = 640, 22, 44, 90, 440
_GREY, _AMBER, _GREEN = "#8a8f98", "#d18f00", "#2f8f4e"


def svg_of(results: Sequence[Lateness]) -> str:
    """One bar for each delay: amber for the delay of the pipeline, green for the suggested one."""
    parts, top = list[str](), 0
    for each in results:
        parts += _stream(each, top)
        top += _HEAD + _ROW * len(each.late) + _ROW // 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}"'
        ' font-family="sans-serif" font-size="13">\n'
        f'<rect width="{_WIDTH}" height="{top}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _stream(result: Lateness, top: int) -> Iterator[str]:
    title = f"{result.stream}: late records by max_delay, of {result.records:,}"
    yield f'<text x="10" y="{top + 20}" font-weight="bold">{escape(title)}</text>'
    most = max(result.late.values()) or 1.0
    for number, (delay_us, share) in enumerate(result.late.items()):
        y = top + _HEAD + _ROW * number
        color = {result.suggested_us: _GREEN, result.max_delay_us: _AMBER}.get(delay_us, _GREY)
        width = max(share / most * _BARS, 1)
        mark = "  now" if delay_us == result.max_delay_us else ""
        mark += "  suggested" if delay_us == result.suggested_us else ""
        delay = duration_text(delay_us)
        yield f'<text x="{_LABEL - 8}" y="{y + 4}" text-anchor="end">{delay}</text>'
        yield f'<rect x="{_LABEL}" y="{y - 7}" width="{width:.1f}" height="14" fill="{color}"/>'
        yield f'<text x="{_LABEL + width + 6:.1f}" y="{y + 4}">{share:.3%}{mark}</text>'
