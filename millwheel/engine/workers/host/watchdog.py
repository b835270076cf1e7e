"""Looks at calls of user code from beside the loop. One that does not return is written down, and
ends the worker."""

from __future__ import annotations

import faulthandler
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType

from millwheel.core.model.times import duration_text
from millwheel.engine.workers.bundle.hangs import Doing, Hang, Hangs, LeasedShard, Watched
from millwheel.engine.workers.bundle.user_lines import current_line, is_library

_log = logging.getLogger(__name__)
_PERIOD_US = 1_000_000  # between looks at running calls
_WRITE_S = 10.0
"""How long the note may take: a worker that cannot write must end all the same."""
_GRACE_S = 30.0
"""How much later the process is ended by a thread that needs no Python, when C code lets no other
thread run."""


class HangCounter:
    """Counts how many looks in a row found the same call. Looks, not seconds: a process that was
    stopped, or got no processor, is not taken for one that hangs."""

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self._before: object = None
        self._count = 0

    def look(
        self, watched: Iterable[tuple[LeasedShard, Watched]]
    ) -> tuple[LeasedShard, Doing] | None:
        """The call that has run for too long."""
        for identity, operator in watched:
            if not operator.busy():
                continue
            now = (identity, operator.progress())
            self._count = self._count + 1 if now == self._before else 0
            self._before = now
            doing = operator.doing() if self._count >= self._looks else None
            return None if doing is None else (identity, doing)
        self._before = None
        return None


class Standstill:
    """Counts how many consecutive samples found the same frame of user code: that call has not
    returned. It covers code whose calls are not announced: key extractors, timestamp functions,
    aggregators, triggers, sources and sinks."""

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self._before: FrameType | None = None
        self._count = 0

    def look(self, frame: FrameType | None) -> bool:
        """True once for each call that has run for too long. ``frame`` is the innermost one of the
        loop."""
        theirs = None
        while frame is not None:
            theirs = theirs if is_library(frame.f_code.co_filename) else frame
            frame = frame.f_back
        # While we refer to a frame, no other call can have the same one.
        self._count = self._count + 1 if theirs is not None and theirs is self._before else 0
        self._before = theirs
        return self._count == self._looks


class Looks:
    """Examines the calls of one worker, and records those that hang. Without threads and clock: the
    watchdog calls it every ``period_us``, and so does the simulator."""

    def __init__(self, hangs: Hangs, timeout_us: int) -> None:
        self._hangs = hangs
        self.words = duration_text(timeout_us)
        self.period_us = min(_PERIOD_US, timeout_us // 4)
        self.looks = math.ceil(timeout_us / self.period_us)
        self._watch = HangCounter(self.looks)

    def look(self, where: Callable[[], str]) -> Hang | None:
        """The call that has not returned in time, at the line that ``where`` returns. If there is
        none, notes that have served are removed, which may block."""
        call = self._watch.look(self._hangs.watched())
        if call is None:
            self._hangs.tidy()
            return None
        identity, doing = call
        key = repr(doing.key)[:500]
        return Hang(
            identity.node,
            identity.shard,
            identity.token,
            doing.what,
            key,
            doing.mark,
            where(),
            self.words,
        )


class Watchdog:
    """A thread of its own. ``end`` ends the process."""

    def __init__(self, hangs: Hangs, timeout_us: int, end: Callable[[], None]) -> None:
        self._hangs = hangs
        self._looks = Looks(hangs, timeout_us)
        # Later than a callback ends the worker: that is the better message.
        self._standstill = Standstill(self._looks.looks + 2)
        self._latest_s = timeout_us / 1e6 + _GRACE_S
        self._end = end
        self._loop = threading.get_ident()

    def start(self) -> None:
        """Watch the calls of the thread that calls this, which must be the main one."""
        period_s = self._looks.period_us / 1e6
        self._loop = threading.get_ident()
        signal.signal(signal.SIGALRM, _let_others_run)
        signal.siginterrupt(signal.SIGALRM, False)
        signal.setitimer(signal.ITIMER_REAL, period_s, period_s)
        threading.Thread(target=self._run, args=(period_s,), name="watchdog", daemon=True).start()

    def _run(self, period_s: float) -> None:
        while True:
            faulthandler.dump_traceback_later(self._latest_s, exit=True)
            time.sleep(period_s)
            try:
                hang = self._looks.look(self._where)
                self._name_others(hang)
            except Exception:  # a look that failed must not end the watch
                _log.exception("a look at the running callback failed")
                continue
            if hang is not None:
                self._report(hang)
                self._end()

    def _where(self) -> str:
        return current_line(sys._current_frames().get(self._loop))

    def _name_others(self, hang: Hang | None) -> None:
        """Log the line of a call that does not return and is not a callback: it blocks the whole
        worker."""
        if self._standstill.look(sys._current_frames().get(self._loop)) and hang is None:
            _log.error(
                "a call of user code that is not a callback (a key extractor, timestamp function,"
                " aggregator, trigger, source or sink) has not returned for %s, at %s: this worker"
                " does nothing until it does",
                *(self._looks.words, self._where()),
            )

    def _report(self, hang: Hang) -> None:
        _log.error(
            "computation %s has not returned for %s from a %s of key %s (shard %s), at %s: this"
            " worker ends, and is started again. limits.callback_timeout allows more",
            *(hang.node, hang.timeout, hang.what, hang.key, hang.shard, hang.where),
            extra={"node": hang.node, "shard": hang.shard},
        )
        writer = threading.Thread(target=self._write, args=(hang,), daemon=True)
        writer.start()
        writer.join(_WRITE_S)

    def _write(self, hang: Hang) -> None:
        try:
            self._hangs.write(hang)
        except Exception:  # the process ends in any case; the call will then be made again
            _log.exception("the note about it could not be written")


class Tidying:
    """In the place of a :class:`Watchdog` where calls may take any time: only removes notes that
    have served. Left behind, those about deaths would make the records of their shard run one by
    one at every opening."""

    def __init__(self, hangs: Hangs) -> None:
        self._hangs = hangs

    def start(self) -> None:
        """Tidy from now on, on a thread of its own."""
        threading.Thread(target=self._run, name="tidying", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(_PERIOD_US / 1e6)
            self.tidy()

    def tidy(self) -> None:
        """Once. If the root fails, the notes stay."""
        try:
            self._hangs.tidy()
        except Exception:  # the thread must go on
            _log.exception("notes that have served could not be removed")


def _let_others_run(number: int, frame: FrameType | None) -> None:
    """C code that looks for signals but keeps the interpreter, such as a regular expression, lets
    the watchdog run."""
    time.sleep(0)
