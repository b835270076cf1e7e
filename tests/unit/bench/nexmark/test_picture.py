from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from bench.nexmark.picture import PAGE, PICTURE, drawn, figures

TABLE = """
| query | | events/s | Flink SQL | times Flink's |
|---|---|---|---|---|
| q0 | each bid | 20 | 10 | 2.00 |
| q6 | the last ten | 30 | | |
| q11 | sessions | 30 | 60 | 0.50 |
| all | geometric mean | | | 1.00 |
"""


def test_the_picture_is_that_of_the_page() -> None:
    times = figures(PAGE.read_text(encoding="utf-8"))
    assert PICTURE.read_text(encoding="utf-8") == drawn(times), "python -m bench nexmark-picture"


def test_a_query_without_a_figure_has_no_bar() -> None:
    assert figures(TABLE) == {"q0": 2.0, "q11": 0.5}


def test_a_bar_is_as_high_as_its_figure_and_one_below_flink_stands_out() -> None:
    svg = ElementTree.fromstring(drawn(figures(TABLE)))
    page, ahead, behind = svg.iter("{http://www.w3.org/2000/svg}rect")
    assert (page.get("class"), ahead.get("class"), behind.get("class")) == ("page", "bar", "behind")
    heights = [float(each.get("height", "0")) for each in (ahead, behind)]
    assert heights[0] == pytest.approx(4 * heights[1], rel=0.01)
    words = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"q0", "steps", "q11", "windows", "Flink SQL", "mean 1.00"} <= {*words}


def test_a_page_without_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="needs one table of queries"):
        figures("| query | events/s |")
