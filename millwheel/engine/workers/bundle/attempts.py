"""Calls of user code that may fail: each is tried several times, the effects of a failed attempt
are undone, and a final failure becomes a dead letter in the same commit."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millwheel.connect.python_objects import missing_file_hint
from millwheel.core.model.failures import ENDLESS, MOST_WORDS, encodable, in_words
from millwheel.core.model.keys import Key
from millwheel.core.model.records import DeadLetter
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.steps import step_text
from millwheel.core.pipeline.work import (
    BranchesSpec,
    CallbackSpec,
    CopiesSpec,
    DeduplicateSpec,
    EnrichSpec,
    IntervalJoinSpec,
    JoinSpec,
    LookupSpec,
    OverSpec,
    RegularJoinSpec,
    StepsSpec,
    TableSpec,
    TopSpec,
    Work,
)
from millwheel.engine.workers.boundaries import passes
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.hangs import Avoided, Hang
from millwheel.engine.workers.bundle.user_lines import line_of
from millwheel.engine.workers.state.keyed_state import KeyedState
from millwheel.errors import EndlessTimerError


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a call, for a dead letter: ``what`` is a noun, ``cause`` the basis of the ids
    of weak productions."""

    what: str
    key: Key
    timestamp: int
    value: Any
    stream: str = ""
    cause: object = None


class Attempts:
    """The attempts at the callbacks of one shard. ``code`` names the user's code in messages."""

    def __init__(self, spec: ComputationSpec, pipeline: str, code: str, state: KeyedState) -> None:
        self._spec = spec
        self._pipeline = pipeline
        self._code = code
        self._state = state
        self.avoided = Avoided()
        self.current: tuple[Callable[[], bytes], Callable[[], Subject]] | None = None
        """The subject of the running call: its mark, and the rest."""
        self.calls = 0

    def run(
        self,
        bundle: Bundle,
        call: Callable[[], None],
        subject: Callable[[], Subject],
        mark: Callable[[], bytes],
    ) -> None:
        """Call until it works, ``max_attempts`` times at most; ``subject`` is asked only when it
        does not. A call that did not return at an earlier owner is not repeated."""
        hang = self.avoided.meet(mark(), bundle.number) if self.avoided.hangs else None
        if hang is not None:
            self._refuse(bundle, subject(), hang)
            return
        self.current = mark, subject
        if self.avoided.lone:
            self._try_alone(bundle, call, subject, mark())
        else:
            self._try(bundle, call, subject)
        self.current = None

    def _try_alone(
        self, bundle: Bundle, call: Callable[[], None], subject: Callable[[], Subject], mark: bytes
    ) -> None:
        """Do the same with a note that survives the worker: earlier owners have died of one of
        these calls."""
        about = subject()
        before = self.avoided.alone(mark, about.what, about.key)
        self._try(bundle, call, subject)
        self.avoided.over(before)

    def _try(
        self, bundle: Bundle, call: Callable[[], None], subject: Callable[[], Subject]
    ) -> None:
        for attempt in range(1, self._spec.max_attempts + 1):
            self._state.flush()
            self.calls += 1
            undo_point, produced = bundle.overlay.savepoint(), bundle.outputs.mark()
            marks = {domain: queue.savepoint() for domain, queue in bundle.timers.items()}
            try:
                call()
                self._state.flush()
                return
            except BaseException as ex:  # the callback's own failure
                if passes(ex):
                    raise
                bundle.overlay.undo_to(undo_point)
                bundle.outputs.cut_to(produced)
                for domain, queue in bundle.timers.items():
                    queue.undo_to(marks[domain])
                self._state.forget()
                if attempt == self._spec.max_attempts:
                    self._give_up(bundle, subject(), ex)

    def _refuse(self, bundle: Bundle, subject: Subject, hang: Hang) -> None:
        """Send a dead letter for a call that did not return."""
        self._state.point(subject.key, subject.timestamp)
        letter = DeadLetter(
            pipeline=self._pipeline,
            computation=self._spec.name,
            stream=subject.stream,
            reason=f"{self._code}: {hang.reason}" if hang.ended else f"{self._code} {hang.reason}",
            key=subject.key,
            value=subject.value,
            timestamp=subject.timestamp,
            location=hang.where,
            attempts=1,
            state=self._described(),
        )
        bundle.dead_letter(letter, subject.timestamp, subject.cause, subject.what)

    def _described(self) -> dict[str, Any]:
        """The state of the key, but for one that is a whole table, or of windows."""
        work = self._spec.work
        whole = isinstance(work, CopiesSpec | JoinSpec)
        whole = whole or (isinstance(work, EnrichSpec) and work.copied)
        return {} if whole else self._state.describe()

    def _give_up(self, bundle: Bundle, subject: Subject, ex: BaseException) -> None:
        failure = _failure_of(ex)
        attempts = self._spec.max_attempts
        self._state.point(subject.key, subject.timestamp)
        letter = DeadLetter(
            pipeline=self._pipeline,
            computation=self._spec.name,
            stream=subject.stream,
            reason=f"{self._code} failed {attempts} times on this {subject.what}: {failure.words}",
            key=subject.key,
            value=subject.value,
            timestamp=subject.timestamp,
            exception=failure.trace,
            location=failure.where,
            attempts=attempts,
            state=self._described(),
            error=failure.kind,
            what=subject.what,
        )
        what = ENDLESS if isinstance(ex, EndlessTimerError) else subject.what
        bundle.dead_letter(letter, subject.timestamp, subject.cause, what)


@dataclass(frozen=True, slots=True)
class _Failure:
    """An exception of user code, as a dead letter describes it."""

    kind: str
    words: str
    where: str
    trace: str


def _failure_of(ex: BaseException) -> _Failure:
    """The text of an exception, and where it was raised."""
    try:
        where = line_of(ex)
        trace = "".join(traceback.format_exception(ex))[-MOST_WORDS:]
        hint = missing_file_hint(ex)
    except BaseException:  # an exception may have attributes of its own making
        where, trace, hint = "", "", ""
    return _Failure(type(ex).__name__, in_words(ex) + hint, encodable(where), encodable(trace))


def code_of(work: Work) -> str:
    """The user's code of a computation, as it is named in the pipeline."""
    match work:
        case CallbackSpec(callback=callback):
            return callback
        case LookupSpec(kind=kind):
            return f"lookup in {kind}"
        case EnrichSpec(stream=stream, of=of):
            return f"enrich with {of or stream}"
        case TableSpec(of=of):
            return f"table of {of}"
        case CopiesSpec(of=of):
            return f"copies of {of}"
        case DeduplicateSpec():
            return "deduplicate"
        case RegularJoinSpec() | IntervalJoinSpec():
            return "join"
        case OverSpec():
            return "over"
        case TopSpec(by=by, upserts=is_table):
            return "table" if is_table else "top" if by else "deduplicate"
        case BranchesSpec():
            return "branch"
        case StepsSpec(steps=steps):
            return ", ".join(step_text(step) for step in steps)
    return ""
