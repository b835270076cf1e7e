from __future__ import annotations

from typing import Any

from millwheel.core import metrics as c
from millwheel.core.metrics import Metric
from millwheel.core.model.failures import CHAINED_IN, CHAINED_OUT, KINDS, chained_counter
from millwheel.core.model.times import IDLE_TIME, SECOND
from millwheel.engine.workers.host.figures import figures_of
from tests.unit.engine.workers.loop.stand import live

PLACE = ("work", "work-0")


def valued(served: Any, now_us: int = 10 * SECOND) -> dict[tuple[Metric, tuple[str, ...]], Any]:
    return {(each.metric, each.values): each.value for each in figures_of([served], now_us)}


def test_counters_of_commits_become_metrics() -> None:
    _, served = live()
    served.shard.meta.counters = {
        "records_in": 7, "late": 1, "dead_letters": 3, f"{KINDS}odd": 2, f"{KINDS}even": 1,
        "duplicates.hits": 4, "mine": 5,
    }  # fmt: skip
    found = valued(served)
    assert found[c.RECORDS_IN, PLACE] == 7
    assert found[c.LATE_RECORDS, PLACE] == 1
    assert found[c.DEAD_LETTERS, (*PLACE, "odd")] == 2
    assert found[c.DEAD_LETTERS, (*PLACE, "even")] == 1
    assert found[c.DUPLICATES, (*PLACE, "hits")] == 4
    assert found[c.USER_COUNTER, (*PLACE, "mine")] == 5
    assert not [values for metric, values in found if "dead_letters" in values]
    assert found[c.SHARDS, ("live",)] == 1


def test_a_shard_that_reads_no_source_counts_what_it_took() -> None:
    _, served = live()
    served.done.records, served.done.busy_us = 9, 1_500_000
    found = valued(served)
    assert found[c.RECORDS_IN, PLACE] == 9
    assert found[c.BUSY_SECONDS, PLACE] == 1.5
    assert (
        found[c.TIMERS, (*PLACE, "event")]
        == found[c.INBOX_RECORDS, PLACE]
        == found[c.CREDIT_USED, PLACE]
        == 0
    )


def test_a_chained_node_has_the_metrics_that_it_has_apart() -> None:
    _, served = live()
    served.done.records, served.shard.meta.next_seq = 9, 5
    served.shard.meta.counters = {
        chained_counter("work", CHAINED_OUT): 8,
        **{chained_counter("some", name): 7 for name in (CHAINED_IN, "unmatched", f"{KINDS}odd")},
        chained_counter("some", CHAINED_OUT): 4,
    }
    found = valued(served)
    some = ("some", "work-0")
    assert (found[c.RECORDS_IN, PLACE], found[c.RECORDS_OUT, PLACE]) == (9, 8)
    assert (found[c.RECORDS_IN, some], found[c.RECORDS_OUT, some]) == (7, 4)
    assert found[c.USER_COUNTER, (*some, "unmatched")] == 7
    assert found[c.DEAD_LETTERS, (*some, "odd")] == 7


def test_a_watermark_that_is_no_time_has_no_lag() -> None:
    _, served = live()
    served.last.state = (4 * SECOND, 0, 1)
    assert valued(served)[c.WATERMARK_LAG, PLACE] == 6.0
    served.last.state = (IDLE_TIME, 0, 1)
    assert (c.WATERMARK_LAG, PLACE) not in valued(served)
