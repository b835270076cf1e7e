import xml.etree.ElementTree as ElementTree

import pytest

from bench.plots import bars
from bench.report import place
from bench.stats import spread


def test_a_part_replaces_its_own_place_and_nothing_else() -> None:
    page = "before\n<!-- bench:A -->\nold\n<!-- /bench:A -->\nbetween\n<!-- bench:B -->\nkept\n<!-- /bench:B -->\n"
    filled = place(page, "A", r"new \1")
    assert filled == page.replace("\nold\n", "\nnew \\1\n")
    assert place(filled, "A", r"new \1") == filled


def test_a_page_without_a_place_for_the_part_is_refused() -> None:
    with pytest.raises(ValueError, match="0 places for part C"):
        place("nothing here", "C", "text")


def test_a_plot_is_an_svg_with_a_bar_for_each_row_in_proportion() -> None:
    svg = ElementTree.fromstring(bars("A & B", [("millwheel", spread([4.0])), ("other <1>", spread([1.0, 2.0, 3.0]))]))
    widths = [float(bar.attrib["width"]) for bar in svg.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert widths[0] / widths[1] == pytest.approx(2.0, rel=0.01)
