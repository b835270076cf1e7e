from __future__ import annotations

from millwheel import GeneratorSource, Pipeline, StdoutSink


def test_one_drawing_is_text_picture_and_mermaid() -> None:
    p = Pipeline("load")
    p.read("load", GeneratorSource(count=3)).write(StdoutSink())
    shown = p.explain()
    assert "generator: count=3" in str(shown) == repr(shown)
    assert shown._repr_html_() == shown.svg()
    assert shown.svg().startswith("<svg")
    assert shown.mermaid().startswith("flowchart TB")
