"""The picture of a pipeline as a tree."""

from __future__ import annotations

import re

from millwheel.tools.explain.picture import Picture
from tests.unit.tools.explain.test_picture import REPO, example, tree_text


def test_the_tree_names_every_box_once_and_refers_to_it_elsewhere(shop: Picture) -> None:
    text = tree_text(shop)
    assert text.count("n = sum(n)") == 1
    assert len(re.findall(r"→ sessions +window  \(above\)", text)) == 1
    assert "again → retry  callback  (above)" in text
    assert {line.split()[1] for line in text.splitlines() if line[:1] in "├└"} >= {
        "orders",
        "payments",
        "clicks",
        "all",
    }


def test_the_tree_of_the_page_is_current() -> None:
    page = (REPO / "docs" / "explain.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(.*?)\n```", page, re.DOTALL)
    assert shown == tree_text(example("weblog"))
