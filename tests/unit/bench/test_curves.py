import re

import pytest

from bench.curves import curves


def test_ten_times_the_value_is_one_step_up_wherever_it_begins() -> None:
    drawn = curves("title", "workers", {"a": [(10, 1.0), (100, 10.0), (1_000, 100.0)]})
    [shape] = re.findall(r'polyline points="([^"]*)"', drawn)
    points = [tuple(map(float, pair.split(","))) for pair in shape.split()]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)  # drawn to a tenth
    assert y0 > y1


def test_labels_of_lines_that_end_together_do_not_cover_each_other() -> None:
    drawn = curves("title", "workers", {"a": [(1, 1.0), (10, 5.0)], "b": [(1, 2.0), (10, 5.0)]})
    labels = [float(y) for y in re.findall(r'y="([\d.]+)" fill="#', drawn)]
    assert len(labels) == 2
    assert labels[1] - labels[0] >= 15


def test_text_is_escaped_and_nothing_cannot_be_drawn() -> None:
    assert "<b>" not in curves("<b>", "<b>", {"<b>": [(1, 0.0), (2, 0.0)]})
    with pytest.raises(ValueError, match="nothing to draw"):
        curves("title", "workers", {})
