"""What a worker takes of peers and clients, and what it sends them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millwheel.core.model.records import Batch
from millwheel.core.pipeline.spec import Productions
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.effects import Gathering
from millwheel.engine.workers.loop.shard_handle import Life, LocalReply, Served
from millwheel.engine.workers.loop.traffic import Traffic
from millwheel.errors import InvariantError
from tests.unit.engine.workers.bench import NOW, Counting, Dial, ShardBench
from tests.unit.engine.workers.loop.stand import ME, known, live, table

RETRY = 1_000
SINK = table("sink.out", ("w1", 4))
LETTERS = table("sink.dead_letters", (ME, 1))


def stand(served: dict[str, Served], *tables: Any, **addresses: str) -> tuple[Traffic, Gathering]:
    out = Gathering()
    return Traffic(ME, served, known(*tables, **addresses), out, RETRY), out


def delivery(token: int, target: str = "work-0", index: int = 0) -> Any:
    batch = Batch("events", [1], [5], ["a"], [msgspec.Raw(b"\x01")])
    return ev.DeliveryCame("up", "work", target, token, 1, index, batch, "peer")


@pytest.mark.parametrize(("token", "taken"), [(1, True), (2, True), (3, False)])
def test_a_delivery_for_a_later_owner_is_not_taken_by_a_zombie(token: int, taken: bool) -> None:
    """It would be acked without effect: the later owner never sees it."""
    bench, served = live(token=2)
    traffic, out = stand({"work-0": served})
    traffic.delivery(delivery(token))
    assert [refusal.moved for refusal in out.refusals] == ([] if taken else [True])
    assert bench.shard.unfinished() == taken


@pytest.mark.parametrize("life", [life for life in Life if life is not Life.LIVE])
def test_only_a_shard_that_works_takes_deliveries_and_injections(life: Life) -> None:
    bench, served = live()
    served.life = life
    traffic, out = stand({"work-0": served})
    traffic.delivery(delivery(1))
    traffic.delivery(delivery(1, "elsewhere-0"))
    assert [refusal.moved for refusal in out.refusals] == [True, True]
    answers: list[Any] = []
    traffic.injected(
        ev.Injected("events", "work-0", [b"1"], ["x"], lambda *said: answers.append(said)), NOW
    )
    assert answers == [(True, 0, 0, 0)]
    assert bench.shard.unfinished() == 0


def test_behind_a_gap_the_lane_begins_anew_without_a_look_at_the_table() -> None:
    _, served = live()
    traffic, out = stand({"work-0": served})
    traffic.delivery(delivery(1, index=1))
    assert [refusal.moved for refusal in out.refusals] == [False]


def produced(bench: ShardBench) -> None:
    bench.deliver(("a", 1, 5))
    bench.run()


def test_what_rests_on_no_durable_commit_stays_in_the_worker() -> None:
    bench, served = live(Counting)
    traffic, out = stand({"work-0": served}, SINK, LETTERS, w1="there")
    produced(bench)
    traffic.send_all(["work-0"], NOW)
    assert out.sends == []
    bench.settle()
    traffic.send_all(["work-0"], NOW)
    [outgoing] = out.sends
    assert (outgoing.address, outgoing.token, outgoing.send.rests_on) == ("there", 4, 1)


def test_weak_productions_leave_before_their_commit() -> None:
    bench, served = live(Counting, Dial(productions=Productions.WEAK))
    traffic, out = stand({"work-0": served}, SINK, LETTERS, w1="there")
    produced(bench)
    traffic.send_all(["work-0"], NOW)
    assert [outgoing.send.rests_on for outgoing in out.sends] == [0]


def test_a_shard_of_our_own_may_have_it_early_unless_it_is_weak_itself() -> None:
    for productions, early in ((Productions.STRONG, True), (Productions.WEAK, False)):
        bench, served = live(Counting)
        other, local = live(dial=Dial(productions=productions))
        traffic, _ = stand(
            {"work-0": served, "sink.out-0": local}, table("sink.out", (ME, 1)), LETTERS
        )
        produced(bench)
        reached = traffic.send_all(["work-0"], NOW)
        assert list(reached) == (["sink.out-0"] if early else [])
        assert other.shard.unfinished() == early


def test_a_lane_without_an_owner_or_an_address_waits_until_it_is_tried_again() -> None:
    bench, served = live(Counting)
    traffic, out = stand({"work-0": served}, SINK, LETTERS)
    produced(bench)
    bench.settle()
    traffic.send_all(["work-0"], NOW)
    assert served.stalled == {("work-0", "sink.out-0"): NOW + RETRY}
    assert out.sends == []


def test_a_refusal_for_a_gap_is_answered_at_once_and_one_for_a_move_later() -> None:
    bench, served = live(Counting)
    traffic, out = stand({"work-0": served}, SINK, LETTERS, w1="there")
    produced(bench)
    bench.settle()
    traffic.send_all(["work-0"], NOW)
    first = out.sends[-1].send
    traffic.refused(ev.RefusalCame("work-0", "sink.out-0", first.epoch, True), NOW)
    assert list(served.stalled) == [("work-0", "sink.out-0")]
    served.stalled.clear()
    traffic.refused(ev.RefusalCame("work-0", "sink.out-0", first.epoch, False), NOW)
    traffic.send_all(["work-0"], NOW)
    again = out.sends[-1].send
    assert (again.batch.seqs, again.index) == (first.batch.seqs, 0)
    assert again.epoch > first.epoch


def test_of_a_lost_peer_only_the_lanes_to_it_wait() -> None:
    bench, served = live(Counting)
    traffic, _ = stand({"work-0": served}, SINK, LETTERS, w1="there", w2="other")
    produced(bench)
    bench.settle()
    traffic.send_all(["work-0"], NOW)
    traffic.peer_lost(ev.PeerLost("other"), NOW)
    assert served.stalled == {}
    traffic.peer_lost(ev.PeerLost("there"), NOW)
    assert served.stalled == {("work-0", "sink.out-0"): NOW + RETRY}


def test_an_ack_of_the_consumer_ends_what_was_on_its_way() -> None:
    bench, served = live(Counting)
    traffic, out = stand({"work-0": served}, SINK, LETTERS, w1="there")
    produced(bench)
    bench.settle()
    traffic.send_all(["work-0"], NOW)
    send = out.sends[-1].send
    served.changed = False
    traffic.acked(ev.AckCame("work-0", "sink.out-0", send.epoch, send.index), 9)
    assert served.changed
    assert not bench.shard.outbox.open


def test_for_each_lane_one_ack_names_the_last_delivery_and_the_commit_it_rests_on() -> None:
    _, served = live()
    traffic, out = stand({"work-0": served})
    batch = Batch("events", [1], [5], ["a"], [1])
    came = [Arrival("up", 1, 0, batch, "peer", 5), Arrival("up", 1, 1, batch, "peer", 5)]
    traffic.answer(
        [
            ("work-0", 3, came[0]),
            ("work-0", 4, came[1]),
            ("work-0", 4, Arrival("b", 2, 0, batch, "x", 5)),
        ],
        9,
    )
    assert [(ack.channel, ack.epoch, ack.up_to, ack.rests_on) for ack in out.acks] == [
        ("up", 1, 1, 4),
        ("b", 2, 0, 4),
    ]


def test_a_shard_of_our_own_is_answered_without_a_wire() -> None:
    bench, served = live(Counting)
    traffic, out = stand({"work-0": served}, SINK, LETTERS, w1="there")
    produced(bench)
    bench.settle()
    [send] = bench.sends()
    batch = Batch("out", [1], [5], ["a"], [1])
    reply = Arrival("work-0", send.epoch, send.index, batch, LocalReply("work-0"), 5)
    traffic.answer([("sink.out-0", 1, reply)], 9)
    assert out.acks == []
    assert not bench.shard.outbox.open


def test_an_ack_within_the_worker_waits_for_its_commit_too() -> None:
    bench, served = live(Counting)
    traffic, _ = stand({"work-0": served}, SINK, LETTERS, w1="there")
    produced(bench)
    reply = Arrival("up", 1, 0, Batch("out", [1], [5], ["a"], [1]), LocalReply("work-0"), 5)
    with pytest.raises(InvariantError, match="acks before its commit 1 is durable; durable is 0"):
        traffic.answer([("work-0", 1, reply)], 9)
