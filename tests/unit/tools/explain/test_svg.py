"""The picture of a pipeline as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from millwheel.language.spec import load_pipeline
from millwheel.tools.explain.picture import Picture, picture_of
from millwheel.tools.explain.svg import svg_of
from tests.unit.tools.explain.test_picture import EXAMPLES, REPO, example


def test_the_picture_is_xml_that_says_what_the_tree_says(shop: Picture) -> None:
    root = ET.fromstring(svg_of(shop))
    texts = " ".join(
        " ".join("".join(each.itertext()).split())
        for each in root.iter("{http://www.w3.org/2000/svg}text")
    )
    for box in shop.boxes:
        assert box.title in texts
        for word in " ".join(box.lines).split():
            assert word in texts
    assert {arrow.stream for arrow in shop.arrows} <= set(texts.split())


def test_every_text_has_room_in_its_box(shop: Picture) -> None:
    root = ET.fromstring(svg_of(shop))
    right = float(root.attrib["width"])
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        if text.attrib.get("text-anchor") is None:
            size = float(text.attrib.get("font-size", 12))
            assert float(text.attrib["x"]) + len("".join(text.itertext())) * size * 0.6 <= right


def test_names_that_are_markup_stay_text(tmp_path: Path) -> None:
    text = "pipeline: p\nstreams: {a: {source: injection, timestamp: t}}\n"
    text += "computations: {c: {input: a, filter: \"x < '<b>&amp;'\", output: d}}\n"
    (tmp_path / "p.yaml").write_text(text)
    svg = svg_of(picture_of(load_pipeline(tmp_path / "p.yaml")))
    assert "<b>" not in svg
    assert "filter x < '<b>&amp;'" in [each.text for each in ET.fromstring(svg).iter()]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_pictures_of_the_examples_are_current(name: str) -> None:
    command = f"millwheel explain examples/{name}/pipeline.yaml --svg docs/pictures/{name}.svg"
    drawn = (REPO / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == svg_of(example(name)), f"run: {command}"
