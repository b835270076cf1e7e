"""A drawn pipeline as a value: text in a terminal, an SVG in a notebook."""

from __future__ import annotations

from io import StringIO

from millwheel.adapters.terminal import Terminal
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.tools.explain.mermaid import mermaid_of
from millwheel.tools.explain.picture import picture_of
from millwheel.tools.explain.svg import svg_of
from millwheel.tools.explain.tree import tree_of

_WIDTH = 120  # characters of a line of the tree


class Explanation:
    """The result of :meth:`millwheel.Pipeline.explain`. ``print`` it, or let a notebook show it."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.picture = picture_of(spec)

    def __str__(self) -> str:
        text = StringIO()
        Terminal(file=text, width=_WIDTH).print(tree_of(self.picture))
        return text.getvalue()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return svg_of(self.picture)

    def svg(self) -> str:
        """The drawing as an SVG document."""
        return svg_of(self.picture)

    def mermaid(self) -> str:
        """The drawing as Mermaid text, for Markdown."""
        return mermaid_of(self.picture)
