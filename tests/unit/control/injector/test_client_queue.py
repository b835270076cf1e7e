from __future__ import annotations

import threading

from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.control.injector.client_queue import ClientQueue
from millwheel.core.model.failures import CallKind, Tally


def next_of(queue: ClientQueue) -> pb.Broadcast:
    return next(queue.messages())


def test_a_slow_reader_gets_the_newest_of_each_and_no_more() -> None:
    queue = ClientQueue()
    for at in range(1_000):
        queue.watermarks({"a": at, "b": -at})
    queue.tokens({"a-0": 1})
    queue.tokens({"a-0": 2})
    queue.tallies({"a": {CallKind("a", "record"): Tally(10, 1)}})
    message = next_of(queue)
    assert {each.node: each.watermark_us for each in message.watermarks} == {"a": 999, "b": -999}
    assert [(known.shard, known.token) for known in message.known] == [("a-0", 2)]
    assert len(message.tallies) == 1
    queue.watermarks({"b": 5})
    message = next_of(queue)
    assert [each.node for each in message.watermarks] == ["b"]
    assert not message.known


def test_a_greeting_is_sent_though_there_is_nothing_to_say() -> None:
    queue = ClientQueue()
    queue.greet({})
    assert next_of(queue) == pb.Broadcast()


def test_a_reader_that_waits_is_woken_by_news_and_by_the_end() -> None:
    queue, got = ClientQueue(), list[pb.Broadcast]()
    heard = threading.Event()

    def read() -> None:
        for message in queue.messages():
            got.append(message)
            heard.set()

    reader = threading.Thread(target=read)
    reader.start()
    queue.watermarks({"a": 1})
    assert heard.wait(10)
    queue.close()
    reader.join(10)
    assert not reader.is_alive()
    assert len(got) == 1


def test_what_was_not_sent_when_it_closed_is_dropped() -> None:
    queue = ClientQueue()
    queue.watermarks({"a": 1})
    queue.close()
    assert list(queue.messages()) == []
