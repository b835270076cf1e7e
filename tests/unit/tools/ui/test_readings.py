from __future__ import annotations

from millwheel.adapters.metrics.text import text_of
from millwheel.core.metrics import catalogue as c
from millwheel.core.metrics.figures import Figure
from millwheel.tools.ui.readings import Rates, ShardReading, readings_in


def test_shards_are_read_from_the_text_of_a_worker() -> None:
    labels = ("n", "n-0")
    figures = [
        Figure(c.RECORDS_IN, 7, labels), Figure(c.RECORDS_OUT, 3, labels), Figure(c.BUSY_SECONDS,
        0.5, labels),
        Figure(c.CREDIT_USED, 0.25, labels), Figure(c.CONGESTED, 1, labels), Figure(c.STATE_BYTES,
        99, labels),
        Figure(c.INBOX_RECORDS, 2, labels), Figure(c.LATE_RECORDS, 5, labels),
        Figure(c.STEP_SECONDS, 1.5),
    ]  # fmt: skip
    found = readings_in(text_of(figures, {"process": "worker-0"}).decode())
    assert found == {"n-0": ShardReading(7, 3, 0.5, 2, 0.25, 1, 99)}


def test_rates_are_of_the_same_shard_in_the_same_worker() -> None:
    rates = Rates()
    assert rates.take({"w0": {"n-0": ShardReading(100, 10, 1.0)}}, 5.0) == {}
    found = rates.take({"w0": {"n-0": ShardReading(300, 30, 1.5)}}, 7.0)["n-0"]
    assert (found.records_in, found.records_out, found.busy) == (100.0, 10.0, 0.25)
    # its new owner counts from 0
    assert rates.take({"w1": {"n-0": ShardReading(5, 0, 0.1)}}, 8.0) == {}
    assert rates.take({"w1": {"n-0": ShardReading(4, 0, 0.1)}}, 9.0)["n-0"].records_in == 0.0
