from __future__ import annotations

from millwheel.core.metrics.figures import Histogram


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value_s in (0.5, 1.0, 1.5, 7.0):
        histogram.add(value_s)
    assert histogram.cumulated() == [2, 3, 4]
    assert (histogram.count, histogram.total_s) == (4, 10.0)
