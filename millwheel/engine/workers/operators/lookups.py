"""Adds the answers of another system to records: all keys of a bundle go into one request, on a
thread of the shard's own, while the bundle waits and other shards work on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.api import Computation, Context
from millwheel.connect.connectors.external.absence import Absence, BackOff
from millwheel.connect.connectors.external.meanings import (
    Next,
    RowToBlameError,
    Tries,
    UnknownError,
    given_up,
    in_words,
    is_of_client,
    named,
)
from millwheel.connect.lookups.base import (
    UNKNOWN,
    AnswerCache,
    Lookup,
    LookupKey,
    NoAnswer,
    answers_to,
)
from millwheel.core.expressions.language import BUILT_IN, Language
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.limits import Limits
from millwheel.core.model.names import ShardName, Token
from millwheel.core.model.records import Record
from millwheel.core.model.times import MAX_TIME
from millwheel.core.order.labels import NO_USE, LabelUse
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import LookupSpec, Missing
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.callbacks import CallbackOperator, Decode
from millwheel.engine.workers.operators.record_joins import UNMATCHED, plain
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError, RecordError, UnavailableError

HITS, MISSES = "lookup_hits", "lookup_misses"
"""Records that needed no request of their own, and requested keys."""
NO_ANSWER = (
    "%s does not answer%s: %s. Records wait for it, and the input with them; nothing is lost."
)
"""The message about a target that is down."""
_RETRY_US = 100_000  # before a target that did not answer is asked again
_CACHED_STATES = 1  # a lookup has no state


class LookupLine:
    """The connection of one shard to its target. Used by one thread at a time; closed when it is
    unused."""

    def __init__(self, lookup: Lookup, absence: Absence, back_off: BackOff) -> None:
        self._lookup = lookup
        self._absence = absence
        self._back_off = back_off
        self._using = threading.Lock()
        self._closed = False
        self._tries = Tries()

    def answers(self, keys: Sequence[LookupKey], batch: int) -> list[Any]:
        """The answers, one for each key. Raises UnavailableError when the target does not answer,
        SetupError when a person must mend something."""
        with self._using:
            try:
                self._back_off.wait()
                answers = [] if self._closed else self._asked(keys, batch)
            except BaseException as ex:
                if not is_of_client(ex):
                    raise
                raise self._failed(in_words(ex, self._lookup.where)) from ex
            finally:
                if self._closed:  # while we asked
                    self._lookup.close()
        self._tries.worked()
        self._back_off.worked()
        self._absence.over()
        return answers

    def close(self) -> None:
        """Close the connection. Another thread may still be using it: then that one closes it."""
        self._closed = True
        if self._using.acquire(blocking=False):
            try:
                self._lookup.close()
            finally:
                self._using.release()

    def _failed(self, error: Exception) -> Exception:
        if (
            isinstance(error, RowToBlameError | UnknownError)
            and self._tries.failed(error, 0) is Next.STOP
        ):
            return given_up(error)
        if not isinstance(error, UnavailableError | UnknownError):
            return error
        self._back_off.failed()
        self._absence.noted(str(error))
        return UnavailableError(str(error))

    def _asked(self, keys: Sequence[LookupKey], batch: int) -> list[Any]:
        starts = range(0, len(keys), batch)
        return [
            answer
            for start in starts
            for answer in answers_to(self._lookup, keys[start : start + batch])
        ]


@dataclass(frozen=True, slots=True)
class LookupTask:
    """A task with requests for another thread. Afterwards the loop calls ``receive(answers, error,
    now)``."""

    shard: ShardName
    token: Token
    line: LookupLine
    keys: Sequence[LookupKey]
    batch: int
    receive: Callable[[list[Any], Exception | None, int], None]

    @property
    def lane(self) -> str:
        """Tasks of one lane share a thread, so a target that is down delays no other."""
        return f"lookup {self.shard}"

    def carried_out(self) -> ev.WorkDone:
        """Send the request. The loop raises an error, or tries again."""
        answers, error = self._asked()
        return ev.WorkDone(
            self.shard, self.token, lambda now_us: self.receive(answers, error, now_us)
        )

    def _asked(self) -> tuple[list[Any], Exception | None]:
        try:
            return self.line.answers(self.keys, self.batch), None
        except Exception as ex:
            return [], ex
        except BaseException as ex:  # of a library: the thread must not end in silence
            if not is_of_client(ex):
                raise
            return [], InvariantError(
                f"a lookup was not made, and its thread was asked to end: {named(ex)}"
            )


class LookedUp(Computation):
    """The computation that adds an answer to each record. ``answers`` holds those of the bundle, by
    the bytes of their keys. Stateless."""

    def __init__(
        self,
        spec: LookupSpec,
        by: Sequence[str],
        outputs: Sequence[str],
        language: Language = BUILT_IN,
    ) -> None:
        self._spec = spec
        self._reads = tuple(language.compile(text).evaluate for text in spec.by or by)
        self._outputs = tuple(outputs)
        self.answers: dict[bytes, Any] = {}

    def key_of(self, value: Any) -> LookupKey | None:
        """The lookup key of a record; None if a part of it is null, because null equals nothing."""
        key = self._parts(value)
        return None if None in key else key

    def _parts(self, value: Any) -> LookupKey:
        return tuple(read(value) for read in self._reads)

    def process_record(self, ctx: Context, record: Record) -> None:
        """Add the answer, which has already arrived."""
        fields = plain(record.value)
        if type(fields) is not dict:
            raise RecordError(f"a lookup adds fields, and a {type(fields).__name__} has no fields")
        key = self._parts(record.value)
        answer = None if None in key else self.answers[encode_value(key)]
        if isinstance(answer, NoAnswer):
            raise RecordError(answer.reason)
        if answer is None:
            ctx.count(UNMATCHED)
            if self._spec.missing is Missing.DROP:
                return
            if self._spec.missing is Missing.DEAD_LETTER:
                raise RecordError(f"{self._spec.kind} has nothing for {key!r}")
        row = {**fields, **self._added(answer)}
        for stream in self._outputs:
            ctx.produce(stream, row)

    def _added(self, answer: Any) -> dict[str, Any]:
        spec = self._spec
        if spec.name:
            return {spec.name: answer}
        if answer is not None and not isinstance(answer, dict):
            raise RecordError(
                f"the answer of {spec.kind} has no fields: it is a {type(answer).__name__}; write"
                " as: NAME"
            )
        return {name: (answer or {}).get(field) for name, field in spec.fields.items()}


@dataclass(frozen=True, slots=True)
class LookupShard:
    """The name and token of a shard, its connection to the target, and the cache it shares.
    ``send`` hands tasks to another thread; None: the loop asks."""

    name: ShardName
    token: Token
    line: LookupLine
    cache: AnswerCache
    by: tuple[str, ...]
    send: Callable[[LookupTask], None] | None = None


class LookupOperator(CallbackOperator):
    """The operator of a lookup: a bundle waits for the answers for all of its keys, and then runs
    like that of a callback. One request is in flight at a time. Records that arrive meanwhile make
    the next bundle larger."""

    def __init__(
        self,
        spec: ComputationSpec,
        pipeline: str,
        shard: LookupShard,
        overlay: Overlay,
        decode: Decode,
        limits: Limits,
        labels: LabelUse = NO_USE,
        language: Language = BUILT_IN,
    ) -> None:
        lookup = spec.work_as(LookupSpec)
        self._looked_up = LookedUp(lookup, shard.by, spec.outputs, language)
        super().__init__(
            spec, pipeline, self._looked_up, overlay, decode, _CACHED_STATES, limits, labels
        )
        self._batch = lookup.batch
        self._shard = shard
        self._values = decode
        self._bundle: Bundle | None = None
        self._questions: dict[bytes, LookupKey] = {}
        self._asking = False
        self._again_at = 0

    def ask(self, bundle: Bundle, now_us: int) -> bool:
        if self._bundle is not bundle:
            self._bundle = bundle
            self._gather(bundle)
        if self._questions and not self._asking and now_us >= self._again_at:
            self._send(now_us)
        return bool(self._questions)

    def asks_at(self) -> int:
        return MAX_TIME if self._asking else self._again_at

    def run(self, bundle: Bundle) -> None:
        super().run(bundle)
        self._bundle = None

    def close(self) -> None:
        self._shard.line.close()

    def _gather(self, bundle: Bundle) -> None:
        """Gather the cached answers, and the keys to request."""
        answers: dict[bytes, Any] = {}
        questions: dict[bytes, LookupKey] = {}
        records = 0
        for arrival in bundle.arrivals:
            batch = arrival.batch.rows()
            for value in self._values(batch.stream, batch.values):
                name = self._name(value, questions)
                if name is None:
                    continue
                records += 1
                if (
                    name not in answers
                    and (answer := self._shard.cache.get(name, bundle.now_us)) is not UNKNOWN
                ):
                    answers[name] = answer
        for name in answers:
            questions.pop(name, None)
        self._looked_up.answers, self._questions = answers, questions
        bundle.count(MISSES, len(questions))
        bundle.count(HITS, records - len(questions))

    def _name(self, value: Any, questions: dict[bytes, LookupKey]) -> bytes | None:
        """The bytes of a record's key. A record that has none for a reason becomes a dead letter
        when it is run."""
        try:
            key = self._looked_up.key_of(value)
            name = None if key is None else encode_value(key)
        except (RecordError, TypeError, ValueError, OverflowError):
            return None
        if name is not None and key is not None:
            questions[name] = key
        return name

    def _send(self, now_us: int) -> None:
        shard = self._shard
        self._asking = True
        task = LookupTask(
            shard.name,
            shard.token,
            shard.line,
            list(self._questions.values()),
            self._batch,
            self._receive,
        )
        if shard.send is not None:
            shard.send(task)
        else:
            task.carried_out().report(now_us)

    def _receive(self, answers: list[Any], error: Exception | None, now_us: int) -> None:
        """Take the answers that another thread has requested."""
        self._asking = False
        if isinstance(error, UnavailableError):
            self._again_at = now_us + _RETRY_US
            return
        if error is not None:
            raise error
        self._again_at = 0
        for name, answer in zip(self._questions, answers, strict=True):
            self._looked_up.answers[name] = answer
            if not isinstance(answer, NoAnswer):
                self._shard.cache.put(name, answer, now_us)
        self._questions = {}
