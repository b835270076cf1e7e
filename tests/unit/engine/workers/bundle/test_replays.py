from __future__ import annotations

import msgspec

from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.pipeline.replays import Again, Past, ReplayOrder
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.replays import ReplayReply, take_replayed
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore

PAST = [Past("first", 3, "letter")]
GOOD = Again("l1", "work", "hits", "a", 5, {"v": 1}, PAST)
BAD = Again("l2", "work", "hits", "b", 6, {"v": 2}, PAST, problem="no key any more")
ORDER = ReplayOrder("order", [GOOD, BAD])


def taken(*records: Again) -> Bundle:
    rows = dict(enumerate(records, 1))
    batch = Batch(
        "hits", [*rows], [each.timestamp for each in records], ["k"] * len(rows), [None] * len(rows)
    )
    arrivals = [
        Arrival("replay", 1, 0, batch, ReplayReply(ORDER, rows), 5),
        Arrival("up", 1, 0, Batch("hits", [1], [9], ["z"], [None]), "peer", 9),
    ]
    bundle = Bundle(
        1, 0, 0, arrivals, Overlay(SimStore({})), {domain: TimerQueue(domain) for domain in Domain}
    )
    take_replayed(bundle, "p")
    return bundle


def test_what_is_tried_again_is_counted_under_its_order_and_the_rest_is_not() -> None:
    bundle = taken(GOOD, GOOD)
    assert bundle.counters == {ORDER.counter: 2}
    assert [len(arrival.batch) for arrival in bundle.arrivals] == [2, 1]


def test_what_has_a_problem_already_is_a_letter_with_its_history_and_is_not_run() -> None:
    bundle = taken(BAD, GOOD)
    assert bundle.counters[ORDER.counter] == 2, "both are done"
    assert bundle.arrivals[0].batch.rows().seqs == [2]
    [letter] = [msgspec.msgpack.decode(raw) for raw in bundle.outputs.streams[DEAD_LETTERS].raws]
    assert (letter["reason"], letter["computation"]) == ("no key any more", "work")
    assert [past["reason"] for past in letter["history"]] == ["first"]
