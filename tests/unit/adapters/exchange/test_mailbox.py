from __future__ import annotations

import threading
import time

from millwheel.adapters.exchange.mailbox import Mailbox
from tests.unit.adapters.exchange.test_exchange import WAIT_S, Peer


def test_events_of_other_threads_wake_the_loop_at_once() -> None:
    peer = Peer()
    began = time.monotonic()
    threading.Timer(0.05, peer.mailbox.put, ("news",)).start()
    assert peer.mailbox.sleep()
    peer.exchange.wait(WAIT_S)
    peer.mailbox.wake()
    assert peer.mailbox.take(10) == ["news"]
    assert time.monotonic() - began < WAIT_S / 2
    peer.mailbox.put("more")
    assert not peer.mailbox.sleep(), "there is something already"
    peer.close()


def test_a_mailbox_gives_what_was_put_in_order_and_no_more_than_asked() -> None:
    mailbox = Mailbox()
    for number in range(5):
        mailbox.put(number)
    assert (mailbox.take(2), mailbox.take(10), mailbox.take(10)) == ([0, 1], [2, 3, 4], [])
    mailbox.close()
