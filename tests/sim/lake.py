"""A table whose commits are made one after the other, as several processes use it through the real
committers: slow, at times away, with a client that panics."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import greenlet
import pyarrow as pa

from millwheel.connect.connectors.external.meanings import UnknownError
from millwheel.connect.connectors.tables.committer import Committer
from millwheel.connect.connectors.tables.sink import TableSink, TableSinkOptions
from millwheel.connect.connectors.tables.table import (
    LakeTable,
    TableChange,
    TableConflictError,
    TableMark,
    TableVersion,
)
from millwheel.errors import UnavailableError
from tests.sim.kernel import SECOND, START_US, Failure
from tests.sim.process import Lock, Process, Task

_PANICS = 3
"""So many panics at most: a target that answers a shard with nothing else for some more tries ends
the run."""


_SLOW_UNTIL_US = 8 * SECOND
"""So long a lake may be slow; then its commits must not take the time in which everything
drains."""
_LATER_US = 50_000


class PanicException(BaseException):
    """As a library in Rust raises it."""


def _process() -> Process | None:
    current = greenlet.getcurrent()
    return cast("Task", current).process if isinstance(current, Task) else None


def _pass(seconds: float) -> None:
    """Time passes for the process that calls."""
    if (process := _process()) is not None:
        process.sleep(int(seconds * 1e6))
        process.check()


class Lake(LakeTable):
    """``trouble`` is how often a call is not answered, ``slow_us`` how long one takes at most."""

    where = "the lake"
    identity = ("lake",)

    def __init__(self, schema: pa.Schema, seed: int) -> None:
        self.schema = schema
        self.rows: list[dict[str, Any]] = []
        self.marks: dict[str, TableMark] = {}
        self.number = 0
        self._rng = rng = random.Random(f"lake {seed}")
        self.trouble = rng.choice([0, 0.05, 0.3])
        self.slow_us = rng.choice([1_000, 50_000, 800_000])
        self._panics = rng.choice([0, _PANICS])

    def look(self) -> TableVersion:
        self.answer()
        return _Version(self)

    def create(self, schema: pa.Schema) -> None:
        raise AssertionError("it is there")

    def answer(self) -> None:
        """A call takes its time, and may have no answer."""
        rng = self._rng
        process = _process()
        slow = process is None or process.sim.now < START_US + _SLOW_UNTIL_US
        _pass(rng.randint(100, self.slow_us if slow else min(self.slow_us, _LATER_US)) / 1e6)
        if rng.random() >= self.trouble:
            return
        if self._panics and rng.random() < 0.3:
            self._panics -= 1
            raise rng.choice([PanicException, UnknownError])(
                "called `Option::unwrap()` on a `None` value"
            )
        raise UnavailableError("the lake is away")

    def take(self, change: TableChange) -> None:
        """A commit. A number belongs to one batch, and no owner writes behind its successor."""
        for name, mark in change.marks.items():
            known = self.marks.get(name, TableMark())
            if mark.token < known.token:
                raise Failure(f"no zombie publishes: {name} goes from {known} to {mark}", (name,))
            if mark.number not in (known.number, known.number + 1):
                raise Failure(
                    f"batches are published in order: {name} goes from {known} to {mark}", (name,)
                )
        self.number += 1
        self.marks |= change.marks
        self.rows += change.add.to_pylist()


class _Version(TableVersion):
    def __init__(self, lake: Lake) -> None:
        self.schema = lake.schema
        self._lake = lake
        self._number = lake.number
        self._marks = dict(lake.marks)

    def mark(self, name: str) -> TableMark:
        return self._marks.get(name, TableMark())

    def commit(self, change: TableChange) -> None:
        self._lake.answer()
        if self._lake.number != self._number:
            raise TableConflictError("another commit was first")
        self._lake.take(change)
        self._lake.answer()

    def standing(self, by: Sequence[str], keys: pa.Table) -> list[dict[str, Any]]:
        raise AssertionError("rows are only added")


class _Turn(Lock):
    """A mutex between tasks of whichever process takes it first: it is never shared by two."""

    def __init__(self) -> None:
        pass

    def __enter__(self) -> None:
        if not hasattr(self, "_process"):
            process = _process()
            assert process is not None
            super().__init__(process)
        super().__enter__()


class _SimCommitter(Committer):
    """The committer of one process, whose threads are tasks."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake, _pass)
        self._committing = _Turn()  # type: ignore[assignment]


def lake_sinks(lake: Lake, flush: str) -> Callable[[], TableSink]:
    """What builds the sinks of one process."""
    committer = _SimCommitter(lake)

    def build() -> TableSink:
        sink = TableSink(TableSinkOptions(flush=flush), lake)
        sink.identity, sink.longest_wait_s, sink.committer = "sim", 0.0, committer
        return sink

    return build
