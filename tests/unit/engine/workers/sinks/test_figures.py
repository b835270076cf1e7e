from __future__ import annotations

from millwheel.core.metrics.catalogue import EVENT_TIME_LATENCY, LATENCY, PUBLISH_FAILURES
from millwheel.core.model.times import MIN_TIME, SECOND
from millwheel.engine.workers.sinks.figures import SinkFigures


def test_both_latencies_of_a_batch_are_counted() -> None:
    figures = SinkFigures()
    figures.visible(10 * SECOND, [9 * SECOND, 8 * SECOND], 3 * SECOND)
    figures.visible(11 * SECOND, [], MIN_TIME)  # found after a crash: nobody knows when it was read
    found = {each.metric: each.value for each in figures.figures()}
    assert (found[LATENCY].count, found[LATENCY].total_s) == (2, 3.0)  # type: ignore[union-attr]
    assert (found[EVENT_TIME_LATENCY].count, found[EVENT_TIME_LATENCY].total_s) == (1, 7.0)  # type: ignore[union-attr]


def test_why_a_target_is_away_is_known_until_it_is_back_and_each_change_is_told_once() -> None:
    figures = SinkFigures()
    figures.away("connection\n refused")
    figures.away("connection refused")
    assert (figures.why, figures.changes, figures.failures) == ("connection refused", 1, 2)
    figures.visible(SECOND, [], SECOND)
    assert (figures.why, figures.changes) == ("", 2)
    assert {each.metric: each.value for each in figures.figures()}[PUBLISH_FAILURES] == 2
