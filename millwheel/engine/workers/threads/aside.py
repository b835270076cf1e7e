"""The threads that call other systems, and that look for orders in the root."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from typing import Protocol

from millwheel.connect.connectors.external.meanings import named
from millwheel.core.pipeline.replays import ReplayOrder
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.ports import BackgroundTask, Post
from millwheel.errors import InvariantError, SetupError, UnavailableError


class PublishThreads:
    """Make committed batches of sinks visible and ask lookups, one thread for each lane, so that
    the loop never waits for a file system, and no sink or lookup for the target of another one."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._lanes: dict[str, queue.SimpleQueue[BackgroundTask]] = {}

    def publish(self, task: BackgroundTask) -> None:
        """Carry it out; the answer is an event."""
        name = task.lane
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = queue.SimpleQueue()
            threading.Thread(
                target=self._run, args=(lane,), name=f"aside {name}".strip(), daemon=True
            ).start()
        lane.put(task)

    def _run(self, lane: queue.SimpleQueue[BackgroundTask]) -> None:
        while True:
            self._post(carried_out(lane.get()))


def carried_out(task: BackgroundTask) -> ev.WorkDone:
    """Carry it out. The loop raises an error that would end the thread: the end of a thread is not
    noticed, and its shard would wait for ever."""
    try:
        return task.carried_out()
    except BaseException as ex:
        error = InvariantError(
            f"the thread of {task.lane or task.shard} was asked to end: {named(ex)}"
        )

        def report(now_us: int) -> None:
            raise error

        return ev.WorkDone(task.shard, task.token, report)


class PendingReplays(Protocol):
    """The orders to try dead letters again, in the root."""

    def undone(self, known_numbers: frozenset[int] = frozenset()) -> Mapping[int, ReplayOrder]:
        """The orders that are not done, except ``known_numbers``."""

    def done(self) -> frozenset[int]:
        """The numbers of the orders that are done."""


class ReplayThread:
    """Looks for orders to try dead letters again, every ``pause_s``."""

    def __init__(self, replays: PendingReplays, pause_s: float, post: Post) -> None:
        self._replays = replays
        self._pause_s = pause_s
        self._post = post
        threading.Thread(target=self._run, name="replays", daemon=True).start()

    def _run(self) -> None:
        order_ids: dict[int, str] = {}
        while True:
            time.sleep(self._pause_s)
            try:
                orders = self._replays.undone(frozenset(order_ids))
                done = self._replays.done() if order_ids else frozenset()
            except (UnavailableError, SetupError):
                continue  # the next look may have an answer
            except Exception as ex:  # the loop ends the process with its words
                self._post(ev.DamageFound(ex))
                return
            for number, order in orders.items():
                order_ids[number] = order.id
                self._post(ev.ReplayOrdered(order, at_start=False))
            for number in done & order_ids.keys():
                self._post(ev.ReplayDone(order_ids.pop(number)))
