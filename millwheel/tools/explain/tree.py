"""The picture as a tree: each source with its consumers below it, and theirs below them.

A box with several inputs is drawn in full where it appears first; elsewhere a line refers to it.
"""

from __future__ import annotations

from rich.text import Text
from rich.tree import Tree

from millwheel.tools.explain.picture import Arrow, Box, BoxKind, Picture

_STYLES = {
    BoxKind.SOURCE: "green",
    BoxKind.WINDOW: "magenta",
    BoxKind.CHANGE_LOG: "magenta",
    BoxKind.CALLBACK: "blue",
    BoxKind.STEPS: "cyan",
    BoxKind.ENRICH: "cyan",
    BoxKind.JOIN: "cyan",
    BoxKind.ORDERED: "cyan",
    BoxKind.SINK: "yellow",
    BoxKind.DEAD_LETTERS: "red",
    BoxKind.QUERY: "white",
}


def tree_of(picture: Picture) -> Tree:
    """The tree, for rich to print."""
    return _Growing(picture).grow()


class _Growing:
    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._met: set[str] = set()

    def grow(self) -> Tree:
        top = Tree(Text(self._picture.title, style="bold"), guide_style="dim")
        fed = {arrow.target for arrow in self._picture.arrows}
        for box in self._picture.boxes:
            if box.name not in fed:
                self._add(top, box, None)
        for box in self._picture.boxes:  # cycles that no source feeds
            if box.name not in self._met:
                self._add(top, box, None)
        return top

    def _add(self, parent: Tree, box: Box, arrow: Arrow | None) -> None:
        if box.name in self._met:
            parent.add(_head(box, arrow).append("  (above)", style="dim"))
            return
        self._met.add(box.name)
        branch = parent.add(_label(box, arrow))
        for after in self._picture.arrows:
            if after.source == box.name:
                self._add(branch, self._picture.box(after.target), after)


def _label(box: Box, arrow: Arrow | None) -> Text:
    text = _head(box, arrow)
    if box.kind is BoxKind.SINK:
        return text.append(f"  {', '.join(box.lines)}")
    for line in box.lines:
        text.append(f"\n    {line}")
    return text.append(f"\n    {box.note}", style="dim") if box.note else text


def _head(box: Box, arrow: Arrow | None) -> Text:
    """``hits by path → traffic  window``."""
    text = Text()
    if arrow is not None:
        text.append(arrow.stream)
        text.append(f" {arrow.key}" if arrow.key else "", style="italic")
        text.append(" → ")
    style = _STYLES[box.kind]
    if box.kind is not BoxKind.SINK:
        text.append(box.title, style=f"bold {style}").append("  ")
    return text.append(box.kind.value, style=style)
