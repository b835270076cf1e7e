"""The contract of an operator, the code that a shard runs. Callbacks, window aggregations, sources
and sinks are operators.

One thread, that of the worker's loop, makes all calls but one (see
:class:`~millwheel.engine.workers.bundle.hangs.Watched`). For each operator the shard calls, in this
order:

1. the questions :meth:`Operator.intake`, :meth:`Operator.wakes_at`, :meth:`Operator.due_at` and
   :meth:`Operator.hold`: several times per step, with no effect. They must be cheap, and must not
   change anything;
2. :meth:`Operator.run`: once per bundle. All its changes go into one commit;
3. :meth:`Operator.durable`: once that commit is durable. Up to four bundles may run before it is
   called;
4. :meth:`Operator.close`, also after a failed ``run``.

A worker may die between any two of them. The next owner opens the store as of the last durable
commit, so an operator keeps nothing in memory that its store does not hold or the same input cannot
make again.

:meth:`Operator.answer` is called at any time between opening and closing, perhaps by another thread
and several times at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from millwheel.adapters.ports import StoreView
from millwheel.core.metrics import Figure
from millwheel.core.model.times import MAX_TIME
from millwheel.core.model.watermark import Fellows, ReadFirst
from millwheel.engine.queries.model import Finding, Query, QueryError
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.bundle.hangs import Avoided, Watched


class SinkNews:
    """The content of the next report of a shard with a sink besides its watermark.
    ``latencies_ms``: those from end to end that were measured since the last one. ``changes``
    counts how often the words of :meth:`Operator.hold` changed for the same watermark, which people
    should read at once."""

    def __init__(self) -> None:
        self.latencies_ms: list[float] = []
        self.changes = 0

    def take_latencies(self) -> list[float]:
        """The latencies, which are reported once."""
        latencies, self.latencies_ms = self.latencies_ms, []
        return latencies


class Operator(ABC):
    """The code of a shard: user code, a window aggregation, a source, a sink.

    Only :meth:`run` must be written. Every other capability has the default of an operator that
    takes all records at once, waits for nothing and holds nothing.
    """

    emits_at_floor: bool = False
    """True when its processing-time timers emit at the shard's floor. The shard then publishes no
    watermark beyond a floor that is not durable: the next owner would emit behind it."""

    asks_for: str = "answers of a lookup"
    """The name of the input that a bundle waits for while :meth:`ask` returns True."""

    collects: bool = False
    """True when records may wait for later ones until the operator is ordered to rest; they do not
    count as unfinished work."""

    avoided: Avoided | None = None
    """The calls and records that have ended earlier owners of the shard. While records run one by
    one because of them, none waits for others."""
    fellows: Fellows | None = None
    """Of a source: the streams that meet its own further down, which exchange their progress."""
    behind: Callable[[Bundle], None] | None = None
    """Lets computations without state take the results of :meth:`run`, in the same bundle. They are
    *chained* behind it."""
    has_chain: bool = False
    """Whether computations take the reads of a source in its shards."""
    news: SinkNews | None = None
    """The news of a sink, or of a source with one behind it."""
    first: ReadFirst | None = None
    """The tables that are read before it goes on, with their progress."""

    @property
    def lone(self) -> bool:
        """Whether records run one by one."""
        return self.avoided is not None and self.avoided.lone > 0

    @property
    def emits_late(self) -> bool:
        """True when it emits late records, at the time that the watermark has passed. They hold no
        watermark, so the rule of ``emits_at_floor`` applies all the time: the next owner works off
        such a record again, and would emit it behind what its predecessor has published."""
        return False

    @property
    def paused(self) -> bool:
        """True while arrivals stay in the inbox and need not be processed before a savepoint,
        because they are not acked."""
        return False

    # --- questions: they change nothing -----------------------------------------------------------

    def intake(self, waiting: int, now_us: int, watermark: int) -> int:
        """The number of the ``waiting`` records (at least 1) to take now; 0 leaves all of them in
        the inbox. ``now_us`` is the wall clock, ``watermark`` that of the input, both in µs."""
        return waiting

    def wakes_at(self, now_us: int) -> int:
        """The time at which it needs a bundle without arrivals or due timers: wall clock, µs.
        MAX_TIME means never. A time that has passed means at once, and a bundle that leaves it
        there makes the loop spin."""
        return MAX_TIME

    def due_at(self) -> int:
        """The time (µs) that the input watermark must have passed for a bundle to be needed;
        MAX_TIME means never."""
        return MAX_TIME

    def due_with(self, at: int, watermark: int) -> int:
        """The number of timers that one set for ``at`` or later counts as, now that the watermark
        (both µs) has passed that: more than 1 where it may fire several windows."""
        return 1

    def hold(self, now_us: int) -> Hold:
        """The holds on the output watermark besides those of inbox, timers and productions.

        A hold may rise between commits only as far as every later owner would let it rise, too. One
        that is too high lets consumers close windows whose records are still to come: they become
        late and are dropped."""
        return Hold()

    def asks_at(self) -> int:
        """The time at which :meth:`ask` is to be called again for a waiting bundle (wall clock,
        µs). MAX_TIME: once another thread reports a result."""
        return MAX_TIME

    def unfinished(self) -> int:
        """The amount of unfinished work that only this operator can count, for example batches that
        are not visible yet. A savepoint waits until it is 0."""
        return 0

    def watched(self) -> Watched | None:
        """The calls of user code for the watchdog; None when it calls none that could hang."""
        return None

    # --- questions from outside -------------------------------------------------------------------

    def answer(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        """The answer to a question from ``state``, a view of the shard's store; ``watermark_us`` is
        that of the input as of the view. ``query.until_us`` is set where there is a window. Raises
        QueryError.

        Runs off the loop: it looks at ``state`` and at constants, never at anything that
        :meth:`run` writes."""
        raise QueryError(
            "not_asked", f"{query.indicator} cannot be asked: it keeps nothing that has a name"
        )

    def answer_committed(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        """The same while a step that has run waits to be committed, which may never be. An operator
        that answers from more than ``state`` must leave out what the step has changed."""
        return self.answer(query, state, watermark_us)

    # --- commands ---------------------------------------------------------------------------------

    def records_wait(self, now_us: int) -> None:
        """Note that records lie in the inbox at ``now_us`` (wall clock, µs). Called before
        :meth:`intake`, at every look while there are any. An operator that collects records starts
        its clock here."""
        return

    def ask(self, bundle: Bundle, now_us: int) -> bool:
        """Ask, on another thread, for the data that :meth:`run` needs from outside. True: it is not
        there yet. Then the bundle waits, nothing of it is acked, and this is called again with the
        same bundle once :meth:`asks_at` has come; ``run`` is called after the first False."""
        return False

    @abstractmethod
    def run(self, bundle: Bundle) -> None:
        """Work through arrivals and due timers.

        Everything that must survive goes into ``bundle``: state into its overlay, results into its
        outputs. Raises only for errors that concern the whole shard: they end the worker, and the
        next owner gets the same input. An error that concerns one record becomes a dead letter.
        Nothing may become visible outside here: the commit may never become durable."""

    def durable(self, number: int, now_us: int) -> None:
        """Note that commit ``number`` of this shard is durable, and with it all before it: effects
        outside may be released."""
        return

    def figures(self) -> Sequence[Figure]:
        """Its figures for ``/metrics`` besides the counters of its bundles, without the labels of
        the shard."""
        return ()

    @property
    def figures_of(self) -> str:
        """The chained node that has these figures; "" for that of the shard."""
        return ""

    def sources_ended(self) -> None:
        """Note that only records in flight will still come: do not wait to fill a batch. May be
        called repeatedly."""
        return

    def rest(self, active: bool, now_us: int) -> None:
        """Begin nothing new while ``active``, and finish the work in progress, so that a savepoint
        finds nothing in flight. Called with every order, and when a shard opens: often with the
        value that it has already."""
        return

    def catch_up(self, active: bool) -> None:
        """Begin a rest, while ``active``, only once everything was read again that an earlier owner
        can have read. A savepoint without that could lack records that some consumers have and
        others do not."""
        return

    def finish(self) -> None:
        """Take nothing more, for ever. A source makes that part of its state; then no later owner
        reads on."""
        return

    def close(self) -> None:
        """Release files and connections."""
        return


class Validated(ABC):
    """An operator that can compare what it has in memory with the store of its shard."""

    @abstractmethod
    def validate(self, state: StoreView) -> None:
        """Raise InvariantError unless what it has in memory follows from ``state``. For tests,
        between two bundles: it may take as long as opening."""
