"""Questions about a worker from outside, answered on another thread than the loop's: ``/metrics``,
``/standing`` and ``/rows``.

The loop gives the figures of its shards between two of its steps. While a step does not end,
because a callback does not return, the last figures stand, and :data:`STEP_SECONDS` shows that they
are old.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic

import msgspec

from millwheel.adapters.grpc.security import Security
from millwheel.adapters.metrics.client import METRICS, ROWS, STANDING
from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.adapters.metrics.text import text_of
from millwheel.adapters.waits import Waiting, waiting
from millwheel.core.metrics import (
    DISK_USED,
    HEALTH,
    JOURNAL_BYTES,
    JOURNAL_WRITE,
    MEMORY_USED,
    SPANS,
    SPANS_DROPPED,
    SPANS_LEFT_OUT,
    STEP_SECONDS,
    Figure,
)
from millwheel.core.model.keys import key_hash
from millwheel.core.tracing import SpanCounts
from millwheel.engine.queries.health import ErrorShare, Health
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.hangs import Hangs
from millwheel.engine.workers.bundle.user_lines import current_line
from millwheel.engine.workers.host.divided_keys import DividedKeys, divided_keys
from millwheel.engine.workers.host.figures import figures_of
from millwheel.engine.workers.host.health import HealthMeasures
from millwheel.engine.workers.host.rows import SeenRow, rows_of
from millwheel.engine.workers.threads.journal import JournalFigures

_ANSWER_S = 0.5
"""How long to wait for the loop to end its step: longer than any healthy step."""
_KEY_CHARS = 120  # of a key that a call is about


class RunningCall(msgspec.Struct, frozen=True):
    """A running call of user code, with its subject."""

    node: str
    shard: str
    what: str
    key: str


class StepStanding(msgspec.Struct, frozen=True):
    """The state of a worker's loop: the duration of its step, the running line of user code, the
    calls, and the obstacle that the process waits for."""

    step_s: float = 0.0
    where: str = ""
    calls: tuple[RunningCall, ...] = ()
    waits: tuple[Waiting, ...] = ()
    divided: DividedKeys = DividedKeys()


class Observed:
    """``begins`` and ``ended`` are called by the loop around each of its steps, everything else by
    other threads. ``scratch`` is a folder on the disk of local stores."""

    def __init__(
        self,
        labels: Mapping[str, str],
        post: Callable[[ev.Event], None],
        journal: JournalFigures,
        hangs: Hangs,
        spans: Callable[[], SpanCounts | None] = lambda: None,
        scratch: str = "",
        finals: Collection[str] = (),
    ) -> None:
        """``finals``: the nodes where the accumulators of divided keys are merged."""
        self._labels = labels
        self._post = post
        self._journal = journal
        self._hangs = hangs
        self._spans = spans
        self._began_s: float | None = None
        self._loop = threading.get_ident()
        self._last: Sequence[Figure] = ()
        self._finals, self._divided = finals, DividedKeys()
        self.health = HealthMeasures(self.step_s, scratch, ErrorShare())

    def serve(self, listen: str, security: Security | None) -> str:
        """Answer at ``listen`` from now on; the address. Raises SetupError if the port is not
        available."""
        endpoint = Endpoint(
            listen, security, {METRICS: self.metrics, STANDING: self.standing, ROWS: self.rows}
        )
        endpoint.start()
        return endpoint.address

    def begins(self) -> None:
        """Note that a step of the loop begins, on the thread that calls this."""
        self._began_s = monotonic()

    def ended(self) -> None:
        """Note that the step is over."""
        self._began_s = None

    def step_s(self) -> float:
        """How long the running step has taken (s); 0 between two steps."""
        began_s = self._began_s
        return 0.0 if began_s is None else monotonic() - began_s

    def metrics(self) -> bytes:
        """All metrics of this worker, as text."""
        answers: queue.SimpleQueue[Sequence[Figure]] = queue.SimpleQueue()
        self._post(ev.FiguresAsked(lambda served, now_us: answers.put(figures_of(served, now_us))))
        with suppress(queue.Empty):
            self._last = answers.get(timeout=_ANSWER_S)
        journal = self._journal
        figures = [
            Figure(JOURNAL_WRITE, journal.seconds),
            Figure(JOURNAL_BYTES, journal.size_bytes),
            Figure(STEP_SECONDS, self.step_s()),
            *_degrees(self.health.now()),
        ]
        if (counts := self._spans()) is not None:
            figures += map(Figure, (SPANS, SPANS_DROPPED, SPANS_LEFT_OUT), counts)
        return text_of([*figures, *self._last], self._labels)

    def rows(self) -> bytes:
        """Rows that the shards of this worker have taken since the last question, as JSON; [] if a
        step hangs."""
        answers: queue.SimpleQueue[list[SeenRow]] = queue.SimpleQueue()
        self._post(ev.FiguresAsked(lambda served, now_us: answers.put(rows_of(served))))
        rows: list[SeenRow] = []
        with suppress(queue.Empty):
            rows = answers.get(timeout=_ANSWER_S)
        return msgspec.json.encode(rows)

    def current(self) -> Mapping[str, str]:
        """Which call is running, for the lines of a log."""
        for identity, watched in self._hangs.watched():
            if watched.busy() and (doing := watched.doing()) is not None:
                return {
                    "node": identity.node,
                    "shard": identity.shard,
                    "key_hash": f"{key_hash(doing.key):016x}",
                }
        return {}

    def standing(self) -> bytes:
        """A :class:`StepStanding` as JSON."""
        calls = []
        for identity, watched in self._hangs.watched():
            doing = watched.doing() if watched.busy() else None
            if doing is not None:
                calls.append(
                    RunningCall(
                        identity.node, identity.shard, doing.what, repr(doing.key)[:_KEY_CHARS]
                    )
                )
        where = current_line(sys._current_frames().get(self._loop)) if calls else ""
        step_s, divided = self.step_s(), self._divided_now() if self._finals else self._divided
        return msgspec.json.encode(
            StepStanding(step_s, where, tuple(calls), tuple(waiting()), divided)
        )

    def _divided_now(self) -> DividedKeys:
        """The latest one; while a step hangs, the last one before it."""
        answers: queue.SimpleQueue[DividedKeys] = queue.SimpleQueue()
        self._post(
            ev.FiguresAsked(lambda served, now_us: answers.put(divided_keys(served, self._finals)))
        )
        with suppress(queue.Empty):
            self._divided = answers.get(timeout=_ANSWER_S)
        return self._divided


def _degrees(health: Health) -> Iterable[Figure]:
    return map(
        Figure, (HEALTH, MEMORY_USED, DISK_USED), (health.degree, health.memory, health.disk)
    )
