"""The picture of a pipeline as Mermaid text, which GitHub, GitLab and many editors draw."""

from __future__ import annotations

from collections.abc import Iterator

from millwheel.tools.explain.picture import Arrow, Box, BoxKind, Picture

_SHAPES = {
    BoxKind.SOURCE: ("([", "])"),
    BoxKind.SINK: ("[(", ")]"),
    BoxKind.DEAD_LETTERS: ("{{", "}}"),
}
_ESCAPED = str.maketrans({"&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;", "\n": " "})


def mermaid_of(picture: Picture) -> str:
    """A flowchart from the sources down, for a block of Markdown that begins with ```` ```mermaid
    ````."""
    numbers = {box.name: f"n{number}" for number, box in enumerate(picture.boxes)}
    lines = ["flowchart TB", *(_box(box, numbers[box.name]) for box in picture.boxes)]
    return "\n".join([*lines, *_arrows(picture.arrows, numbers)]) + "\n"


def _box(box: Box, number: str) -> str:
    left, right = _SHAPES.get(box.kind, ("[", "]"))
    words = "<br>".join(
        [
            f"<b>{_text(box.title)}</b>",
            *map(_text, box.lines),
            *([_text(box.note)] if box.note else []),
        ]
    )
    return f'    {number}{left}"{words}"{right}'


def _arrows(arrows: tuple[Arrow, ...], numbers: dict[str, str]) -> Iterator[str]:
    for arrow in arrows:
        words = _text(arrow.stream) + (f"<br>by {_text(arrow.key)}" if arrow.key else "")
        yield f'    {numbers[arrow.source]} -->|"{words}"| {numbers[arrow.target]}'


def _text(text: str) -> str:
    return text.translate(_ESCAPED)
