from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest

from millwheel.control.savepoints.orders import ANSWERS, OrderAnswer
from millwheel.core.model.names import FIRST_TOKEN, shard_name
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.threads.aside import PublishThreads
from millwheel.engine.workers.threads.copies import OrderAnswers, SnapshotThread
from millwheel.errors import FencedError, InvariantError, UnavailableError
from tests.fakes.coordination import FakeCoordination, FakeZooKeeper


class Snapshots:
    """Takes a checkpoint whole, after a look at the guard."""

    def __init__(self) -> None:
        self.published: list[tuple[str, int, str]] = []
        self.collected: list[str] = []

    def publish(self, shard: str, token: int, commit: int, path: str, guard: Any) -> None:
        guard()
        self.published.append((shard, commit, (Path(path) / "file").read_text()))

    def collect(self, shard: str) -> None:
        self.collected.append(shard)


@pytest.mark.parametrize("fenced", [False, True])
def test_a_checkpoint_is_published_unless_its_owner_is_fenced_and_is_gone_then(
    tmp_path: Path, fenced: bool
) -> None:
    events: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()

    def guard() -> None:
        if fenced:
            raise FencedError("sealed")

    snapshots: Any = Snapshots()
    thread = SnapshotThread(snapshots, str(tmp_path), guard, events.put)
    checkpoint = Path(thread.checkpoint_path("a-0", 2, 7))
    checkpoint.mkdir()
    (checkpoint / "file").write_text("state")
    thread.publish("a-0", 2, 7, str(checkpoint))
    event = events.get(timeout=10)
    if fenced:
        assert isinstance(event, ev.SnapshotFailed)
        assert snapshots.published == snapshots.collected == []
    else:
        assert event == ev.SnapshotPublished("a-0", 2, 7)
        assert (snapshots.published, snapshots.collected) == ([("a-0", 7, "state")], ["a-0"])


def test_an_answer_of_unknown_outcome_is_given_again_under_a_new_name_and_all_are_withdrawn() -> (
    None
):
    server = FakeZooKeeper(immediate=True)
    session = server.connect()

    class Uncertain(FakeCoordination):
        tries = 0

        def join(self, role: str, name: str, data: bytes) -> None:
            session.join(role, name, data)
            self.tries += 1
            if self.tries == 1:
                raise UnavailableError("no answer")

        def leave(self, role: str, name: str) -> None:
            session.leave(role, name)

    answers = OrderAnswers(Uncertain(server), "w.1")
    answers.register(OrderAnswer("s", 3))
    assert sorted(server.members[ANSWERS]) == ["s-3.w.1.1", "s-3.w.1.2"]
    answers.withdraw()
    assert not server.members[ANSWERS]
    assert not answers.registered


# aside.py


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
            InvariantError, match="the thread of sink was asked to end: Abort: no more"
        ):
            answer.report(0)
