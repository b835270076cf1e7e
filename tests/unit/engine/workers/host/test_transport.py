"""What one loop sends is the event that the other loop gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from millwheel.adapters.exchange.mailbox import Mailbox
from millwheel.core.model.records import Batch
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.delivery.outbox import Send, joined_epoch
from millwheel.engine.workers.host.transport import ExchangeTransport
from millwheel.engine.workers.tracing.table import Arrived
from tests.unit.engine.workers.tracing.fakes import CONTEXT, KeptSpans, tracing

EPOCH = joined_epoch(7, 2**63 + 5)


@pytest.fixture
def ends() -> Iterator[tuple[ExchangeTransport, ExchangeTransport]]:
    boxes = (Mailbox(), Mailbox())
    here, there = (ExchangeTransport("127.0.0.1:0", box) for box in boxes)
    yield here, there
    here.close()
    with suppress(RuntimeError, AttributeError, ValueError):  # closed by the test
        there.close()
    for box in boxes:
        box.close()


def pumped(ends: Any, to: int) -> ev.Event:
    for _ in range(1_000):
        ends[1 - to].take(1_000, 10)
        if found := ends[to].take(5_000, 10):
            [event] = found
            return event
    raise AssertionError("nothing came")


def test_a_delivery_its_ack_and_its_refusals_go_there_and_back(ends: Any) -> None:
    here, there = ends
    batch = Batch("s", [1, 2], [5, 6], ["a", "b"], [1, 2])
    here.send(there.address, 9, Send("up", "work", "work-0", EPOCH, 3, batch))
    here.flush()
    came = pumped(ends, 1)
    assert isinstance(came, ev.DeliveryCame)
    assert (came.channel, came.node, came.target, came.target_token) == ("up", "work", "work-0", 9)
    assert (came.epoch, came.index, came.batch.rows().seqs) == (EPOCH, 3, [1, 2])
    there.ack(came.reply_to, "up", "work-0", EPOCH, 3)
    there.flush()
    assert pumped(ends, 0) == ev.AckCame("up", "work-0", EPOCH, 3)  # type: ignore[arg-type]
    for moved in (True, False):
        there.refuse(came.reply_to, "up", "work-0", EPOCH, moved)
        there.flush()
        assert pumped(ends, 0) == ev.RefusalCame("up", "work-0", EPOCH, moved)  # type: ignore[arg-type]


def test_a_peer_that_is_gone_is_told(ends: Any) -> None:
    here, there = ends
    address = there.address
    there.close()
    here.send(address, 1, Send("up", "work", "work-0", EPOCH, 0, Batch("s", [1], [1], ["a"], [1])))
    here.flush()
    for _ in range(1_000):
        if found := here.take(5_000, 10):
            assert found == [ev.PeerLost(address)]
            return
    raise AssertionError("nobody said so")


def test_contexts_travel_beside_a_delivery_and_a_worker_without_tracing_ignores_them() -> None:
    tracings = [tracing(KeptSpans()), tracing(KeptSpans()), None]
    boxes = [Mailbox() for _ in tracings]
    here, there, plain = (
        ExchangeTransport("127.0.0.1:0", box, None, each)
        for box, each in zip(boxes, tracings, strict=True)
    )
    batch = Batch("s", [1, 2], [5, 6], ["a", "b"], [1, 2])
    assert tracings[0]
    assert tracings[1]
    tracings[0].table.put("up", 2, Arrived(CONTEXT))
    for target in (there, plain):
        for seqs in ([1, 2], [3, 4]):
            here.send(
                target.address, 9, Send("up", "work", "work-0", EPOCH, 3, batch.numbered(seqs, 0))
            )
            here.flush()
            came = pumped([here, target], 1)
            assert isinstance(came, ev.DeliveryCame)
            assert came.batch.rows().seqs == seqs
    [(index, arrived)] = tracings[1].table.found("up", batch)
    assert (index, arrived.context, arrived.sender) == (1, CONTEXT, "worker-0")
    assert arrived.sent_us
    assert arrived.came_us
    for end, box in zip((here, there, plain), boxes, strict=True):
        end.close()
        box.close()
