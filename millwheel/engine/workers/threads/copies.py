"""The threads that copy checkpoints: to snapshots, and to savepoints."""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from millwheel.adapters.ports import Coordination, Snapshots
from millwheel.control.savepoints.orders import (
    ANSWERS,
    OrderAnswer,
    SavepointOrder,
    Standing,
    encode,
)
from millwheel.core.model.names import ShardName, Token
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.ports import Post
from millwheel.errors import ConflictError, UnavailableError

_ANSWER_TRIES = 5  # to send the driver of a savepoint an answer


@dataclass(frozen=True, slots=True)
class Publishing:
    """The destination of snapshots. ``guard`` raises when we are fenced."""

    snapshots: Snapshots
    guard: Callable[[], None]

    def publish(
        self, shard: ShardName, token: Token, last_commit: int, path: str, post: Post
    ) -> None:
        """Upload a checkpoint, collect the objects that it makes unreachable, and report the
        outcome."""
        try:
            self.snapshots.publish(shard, token, last_commit, path, self.guard)
            self.snapshots.collect(shard)
        except Exception as ex:  # the loop tries again, or ends when we are fenced
            post(ev.SnapshotFailed(shard, token, ex))
        else:
            post(ev.SnapshotPublished(shard, token, last_commit))


class SnapshotThread:
    """Uploads checkpoints. ``guard`` raises when we are fenced."""

    def __init__(
        self, snapshots: Snapshots, scratch: str, guard: Callable[[], None], post: Post
    ) -> None:
        self._publishing = Publishing(snapshots, guard)
        self._scratch = Path(scratch)
        self._post = post
        self._queue: queue.SimpleQueue[tuple[ShardName, Token, int, str]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="snapshots", daemon=True).start()

    def checkpoint_path(self, shard: ShardName, token: Token, number: int) -> str:
        return str(self._scratch / f"checkpoint-{shard}-{token}-{number}")

    def publish(self, shard: ShardName, token: Token, last_commit: int, path: str) -> None:
        self._queue.put((shard, token, last_commit, path))

    def _run(self) -> None:
        while True:
            shard, token, last_commit, path = self._queue.get()
            self._publishing.publish(shard, token, last_commit, path, self._post)
            shutil.rmtree(path, ignore_errors=True)


@dataclass(slots=True)
class OrderAnswers:
    """Answers to orders, which are members of a role, each under a name of its own. A name whose
    registration has an unknown outcome is never used again. Giving the same answer twice has the
    effect of giving it once."""

    coordination: Coordination
    incarnation: str
    registered: list[str] = field(default_factory=list)
    count: int = 0

    def register(self, answer: OrderAnswer) -> None:
        """Become a member with this answer. Gives up after a few tries; then the process that waits
        does, too."""
        for _ in range(_ANSWER_TRIES):
            self.count += 1
            name = f"{answer.savepoint}-{answer.number}.{self.incarnation}.{self.count}"
            self.registered.append(name)
            with suppress(UnavailableError, ConflictError):
                self.coordination.join(ANSWERS, name, encode(answer))
                return

    def withdraw(self) -> None:
        """Leave, as far as we can; the rest goes with our session."""
        while self.registered:
            with suppress(UnavailableError):
                self.coordination.leave(ANSWERS, self.registered[-1])
            self.registered.pop()


@dataclass(frozen=True, slots=True)
class Copying:
    """Copies checkpoints to savepoints. ``guard`` raises if we are fenced: then our state is no
    longer the shard's."""

    at: Callable[[str], Snapshots]
    guard: Callable[[], None]

    def save(
        self, order: SavepointOrder, shard: ShardName, standing: Standing, path: str, post: Post
    ) -> None:
        """Copy one, and report the outcome."""
        problem = ""
        try:
            self.at(order.folder).publish(shard, standing.token, standing.commit, path, self.guard)
        # the process that ordered the savepoint reports it, and the pipeline continues
        except Exception as ex:
            problem = f"shard {shard} cannot be copied to {order.folder}: {ex}"
        post(ev.ShardSaved(order, shard, standing, problem))


class SavepointThread:
    """Gives answers to orders, and makes the copies that they require, one after the other."""

    def __init__(self, copying: Copying, answers: OrderAnswers, scratch: str, post: Post) -> None:
        self._copying = copying
        self._answers = answers
        self._scratch = Path(scratch)
        self._post = post
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="savepoints", daemon=True).start()

    def answer(self, answer: OrderAnswer) -> None:
        self._queue.put(lambda: self._answers.register(answer))

    def withdraw(self) -> None:
        self._queue.put(self._answers.withdraw)

    def checkpoint_path(self, order: SavepointOrder, shard: ShardName) -> str:
        return str(self._scratch / f"savepoint-{order.name}-{shard}")

    def save(self, order: SavepointOrder, shard: ShardName, standing: Standing, path: str) -> None:
        def work() -> None:
            self._copying.save(order, shard, standing, path, self._post)
            shutil.rmtree(path, ignore_errors=True)

        self._queue.put(work)

    def _run(self) -> None:
        while True:
            self._queue.get()()
