from __future__ import annotations

import queue
from typing import Any

import pytest

from millwheel.core.model.names import FIRST_TOKEN, shard_name
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.threads.aside import PublishThreads
from millwheel.errors import InvariantError


class Abort(BaseException):
    """Of some library."""


class _Aborted:
    lane, shard, token = "sink", shard_name("work", 0), FIRST_TOKEN

    def carried_out(self) -> ev.WorkDone:
        raise Abort("no more")


def test_what_would_end_a_thread_aside_in_silence_ends_the_worker_with_a_sentence() -> None:
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threads = PublishThreads(done.put)
    for _ in range(2):  # the thread goes on
        threads.publish(_Aborted())
        answer = done.get(timeout=30)
        assert (answer.shard, answer.token) == (_Aborted.shard, _Aborted.token)
        with pytest.raises(
            InvariantError, match="the thread of sink was told to end: Abort: no more"
        ):
            answer.tell(0)
