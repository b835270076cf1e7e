"""The picture of a pipeline as Mermaid text."""

from __future__ import annotations

import re

from millwheel.tools.explain.mermaid import mermaid_of
from millwheel.tools.explain.picture import Arrow, Box, BoxKind, Picture


def test_every_box_and_every_arrow_is_a_line(shop: Picture) -> None:
    lines = mermaid_of(shop).splitlines()
    assert lines[0] == "flowchart TB"
    assert len(lines) == 1 + len(shop.boxes) + len(shop.arrows)
    assert len([line for line in lines if "-->" in line]) == len(shop.arrows)


def test_words_cannot_break_out_of_their_box() -> None:
    boxes = (Box("a", BoxKind.SOURCE, 'x"]<b>', ("1 > 0",)), Box("b", BoxKind.SINK, "out"))
    text = mermaid_of(Picture("p", boxes, (Arrow("a", "b", "s", 'f("k")'),)))
    assert '    n0(["<b>x&quot;]&lt;b&gt;</b><br>1 &gt; 0"])' in text
    assert '    n0 -->|"s<br>by f(&quot;k&quot;)"| n1' in text
    assert re.findall(r'\[\("<b>out</b>"\)\]', text)
