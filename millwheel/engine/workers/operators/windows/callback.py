"""Runs a computation with a window and a callback: the machine keeps whole records, and whenever a
window fires, the user's ``process_window`` is called with the records of the pane.

Its state, timers and productions belong to the same commit as the state of the windows. A record is
stored there as ``[input, value]``: the number of its input, and its value as plain data, so that
the callback gets the same value whether or not the state was read back from the store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from millwheel.api import Computation
from millwheel.core.formats.codec import decode_value, encode_value, stream_decoder
from millwheel.core.formats.store_layout import pack, unpack
from millwheel.core.model.records import Domain, Record, Timer
from millwheel.core.model.timers import Due
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.production_ids import Cause, timer_cause
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.windows.contract import Effects, Times
from millwheel.core.windows.panes import Pane, Retraction, as_retraction, retracted
from millwheel.engine.workers.bundle.attempts import Attempts, Subject
from millwheel.engine.workers.bundle.bundle import WINDOW, Bundle
from millwheel.engine.workers.bundle.hangs import Avoided, Doing, Watched, timer_mark
from millwheel.engine.workers.operators.callback_context import CallbackContext
from millwheel.engine.workers.operators.callbacks import Decode
from millwheel.engine.workers.operators.windows.rows import WindowedOperator
from millwheel.engine.workers.state.cells import TTL_TAG
from millwheel.engine.workers.state.keyed_state import KeyedState
from millwheel.engine.workers.state.overlay import Overlay

CALLBACK_TAG = "\0own:"
"""The beginning of the tags of the callback's own timers, beside those of its windows."""
_MOST_RECORDS = 1_000
"""The most records of a window that go into a dead letter."""
_plain_values = stream_decoder({})


class WindowContext(CallbackContext):
    """The context of a callback with a window: its timers lie beside those of the windows."""

    __slots__ = ()

    def _named(self, call: str, tag: Any) -> str:
        return CALLBACK_TAG + super()._named(call, tag)

    def owns(self, tag: str) -> bool:
        return tag.startswith(CALLBACK_TAG) and not tag.startswith(CALLBACK_TAG + TTL_TAG)


class WindowCallbackOperator(WindowedOperator):
    """The operator of a computation with ``window`` and ``callback``."""

    emits_at_floor = True
    """The processing-time timers of its callbacks produce at the shard's floor."""

    def __init__(
        self,
        spec: ComputationSpec,
        pipeline: PipelineSpec,
        instance: Computation,
        overlay: Overlay,
        decode: Decode,
        cache_entries: int,
    ) -> None:
        self._streams = [each.stream for each in spec.inputs]
        self._numbers = {stream: number for number, stream in enumerate(self._streams)}
        self._takes_back = takes_retractions(spec, pipeline)
        super().__init__(spec, pipeline, overlay, self._numbered, cache_entries)
        self._typed = frozenset(stream.name for stream in pipeline.streams if stream.schema)
        self._decode_typed = decode
        self._instance = instance
        # A join keeps waiting firings in parts of a record or so: whether one waits decides no
        # result.
        most = sys.maxsize if spec.called is None else pipeline.limits.state
        self._state = KeyedState(instance, overlay, cache_entries, most, CALLBACK_TAG)
        code = "join" if spec.called is None else spec.called.callback
        outputs, passes_on = frozenset(spec.outputs), spec.called is None
        self._context = WindowContext(
            outputs, self._state, pipeline.limits, spec.identified, passes_on
        )
        self._attempts = Attempts(spec, pipeline.name, code, self._state)

    def run(self, bundle: Bundle) -> None:
        self._context.begin(bundle)
        super().run(bundle)
        self._state.write(self._state.encoded())

    def durable(self, number: int, now_us: int) -> None:
        super().durable(number, now_us)
        self._attempts.avoided.durable(number)

    # --- watching ---------------------------------------------------------------------------------

    def watched(self) -> Watched:
        return self

    def avoid(self, avoided: Avoided) -> None:
        """See :class:`millwheel.engine.workers.bundle.hangs.Watched`, as for the next three."""
        self._attempts.avoided = avoided

    def busy(self) -> bool:
        return self._attempts.current is not None

    def progress(self) -> tuple[int, int]:
        return self._context.calls, self._attempts.calls

    def doing(self) -> Doing | None:
        current = self._attempts.current
        if current is None:
            return None
        mark, subject = current
        about = subject()
        return Doing(about.what, about.key, mark())

    # --- records into the windows -----------------------------------------------------------

    def _numbered(self, stream: str, values: list[Any] | msgspec.Raw) -> list[Any]:
        number = self._numbers[stream]
        plain = _plain_values(stream, values)
        if not self._takes_back:  # what looks like a retraction is data
            return [[number, _plain(value)] for value in plain]
        return [_numbered(number, value) for value in plain]

    def _take(self, bundle: Bundle, times: Times) -> None:
        self._state.clock = bundle.watermark
        super()._take(bundle, times)
        # A window that fires among the records may have set a timer for a time that has passed. It
        # must not wait for the next bundle, or results depend on how records are bundled.
        if self._context.passed:
            self._fire(bundle.fires(Domain.EVENT), times, bundle)

    def _perform(self, effects: Effects, cause: Cause, bundle: Bundle) -> None:
        """Emit unchanged the records that the windows do not take."""
        effects.late = [
            msgspec.structs.replace(each, value=_as_it_came(each.value)) for each in effects.late
        ]
        effects.rejected = [
            msgspec.structs.replace(each, value=_as_it_came(each.value))
            for each in effects.rejected
        ]
        super()._perform(effects, cause, bundle)

    # --- calls ------------------------------------------------------------------------------------

    def _emit(self, pane: Pane, cause: Cause, bundle: Bundle) -> None:
        bundle.try_(WINDOW)

        def call() -> None:
            records = self._records(pane)
            self._context.point(pane.key, pane.timestamp, cause)
            self._context.pane = msgspec.structs.replace(pane, result=records)
            try:
                self._process(pane, records, cause)
                self._state.settle()
            finally:
                self._context.pane = None

        bounds = ("w", pane.key, pane.window.start, pane.window.end, pane.index)
        self._attempts.run(
            bundle, call, lambda: _subject(pane, cause), lambda: encode_value(bounds)
        )

    def _process(self, pane: Pane, records: list[Record], cause: Cause) -> None:
        self._instance.process_window(self._context, pane.key, pane.window, records)

    def _records(self, pane: Pane) -> list[Record]:
        """The records of a pane. They are copies, so that changes by a callback do not reach the
        windows' state."""
        # Without the copy a callback that changes its records changes those of later panes, but
        # only as long as no crash reads them back. See
        # test_a_pane_has_what_is_new_or_all_whatever_the_callback_did_to_its_records.
        stored: Any = unpack(pack(pane.result))
        return [
            Record(
                pane.key,
                self._typed_value(self._streams[number], value),
                timestamp,
                self._streams[number],
            )
            for (number, value), timestamp in stored
        ]

    def _typed_value(self, stream: str, value: Any) -> Any:
        if stream not in self._typed:
            return value
        return self._decode_typed(stream, [msgspec.Raw(encode_value(value))])[0]

    def _fire(self, due: Iterable[Due], times: Times, bundle: Bundle) -> None:
        for timer in due:
            if timer.domain is Domain.EVENT:
                self._state.clock = max(self._state.clock, timer.at)
            if timer.tag.startswith(CALLBACK_TAG):
                self._ring(timer, bundle)
            else:
                super()._fire([timer], times, bundle)

    def _ring(self, due: Due, bundle: Bundle) -> None:
        tag = due.tag[len(CALLBACK_TAG) :]
        floor = due.at if due.domain is Domain.EVENT else bundle.floor
        cause = timer_cause(due) if self._identified else None
        timer = Timer(due.key, tag, due.at, due.domain)

        def call() -> None:
            self._context.point(due.key, floor, cause)
            if tag.startswith(TTL_TAG):
                self._state.expire(tag, due.at)
            else:
                with self._context.chains.call(due):
                    self._instance.process_timer(self._context, timer)
            self._state.settle()

        about = Subject("timer", due.key, floor, repr(timer), cause=cause)
        self._attempts.run(bundle, call, lambda: about, lambda: timer_mark(due))


def _numbered(number: int, value: Any) -> Any:
    back = as_retraction(value)
    if back is not None:
        return Retraction([number, _plain(back.value)])
    return [number, _plain(value)]


def _plain(value: Any) -> Any:
    """Typed objects, as they come from a source in the same process, converted to the plain data of
    their encoding."""
    return value if type(value) is dict else decode_value(encode_value(value))


def _as_it_came(value: Any) -> Any:
    return retracted(value.value[1]) if type(value) is Retraction else value[1]


def _subject(pane: Pane, cause: object) -> Subject:
    records: list[Any] = pane.result
    value = {
        "window_start": pane.window.start,
        "window_end": pane.window.end,
        "pane": pane.index,
        "count": len(records),
        "records": [[value, timestamp] for (_, value), timestamp in records[:_MOST_RECORDS]],
    }
    return Subject("window", pane.key, pane.timestamp, value, cause=cause)
