"""A stream whose records are sent in from outside: each is deduplicated by its id and checkpointed
before the client gets its answer."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from millwheel.adapters.ports import StateStore
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.core.formats.store_layout import POSITION, Position, decode_position, pack
from millwheel.core.instants.decimals import without_decimals
from millwheel.core.instants.numbers import NO_UNIT
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.failures import UNIT
from millwheel.core.model.limits import DEFAULTS, Limits
from millwheel.core.model.names import NodeName
from millwheel.core.model.records import DeadLetter
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME
from millwheel.core.model.watermark import Fellows
from millwheel.core.pipeline.spec import StreamSpec
from millwheel.core.windows.lateness import is_behind, is_too_far, too_far, watermark_after
from millwheel.engine.workers.bundle.bundle import LINE, Bundle, Hold
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.bundle.value_sizes import carried
from millwheel.engine.workers.delivery.timestamps import Timestamps
from millwheel.engine.workers.sources.arrivals import ArrivalClock
from millwheel.engine.workers.sources.silence import Silence
from millwheel.engine.workers.sources.source_parts import SourceEnd

_STORE_KEY = POSITION + b"injection"
_LOOK_EVERY_US = 250_000
"""The period of looks that notice silence."""


class InjectionOperator(Operator):
    """The operator of a ``source.*`` shard of kind ``injection``."""

    def __init__(
        self,
        pipeline: str,
        node: NodeName,
        spec: StreamSpec,
        timestamps: Timestamps,
        schema: Any,
        store: StateStore,
        now_us: int,
        limits: Limits = DEFAULTS,
        closed: bool = False,
        fellows: Fellows | None = None,
    ) -> None:
        """``closed``: the run ends once it has caught up with other sources, and takes nothing
        here."""
        self._pipeline = pipeline
        self._node = node
        self._most = limits.record
        self._spec = spec
        self._timestamps = timestamps
        self._times = FieldTypes({**spec.times, **spec.decimals})
        kind = schema if schema is not None else Any
        self._decode = (
            msgspec.json.Decoder(kind, float_hook=Decimal)
            if spec.decimals
            else msgspec.json.Decoder(kind)
        ).decode
        data = store.get(_STORE_KEY)
        self._max_timestamp = (
            Position().max_timestamp if data is None else decode_position(data).max_timestamp
        )
        self._clock = ArrivalClock(store) if spec.arrival else None
        self._silence = Silence(spec.idle_after_us, now_us)
        self.fellows = fellows or Fellows()
        self._end = SourceEnd(store)
        self._closed = closed

    @property
    def paused(self) -> bool:
        """True while nothing is taken; injecting clients wait."""
        return self._closed or self._end.reads_nothing

    def intake(self, waiting: int, now_us: int, watermark: int) -> int:
        return 0 if self.paused else waiting

    def wakes_at(self, now_us: int) -> int:
        if self._end.due(True):
            return now_us
        if self.paused:
            return MAX_TIME
        if self._clock is not None:
            return self._clock.moves_at_us
        if self._spec.idle_after_us is None:
            return MAX_TIME
        return self._silence.looked_at_us + _LOOK_EVERY_US

    def run(self, bundle: Bundle) -> None:
        before = self._own_hold()
        if self._end.due(True):
            self._end.commit(bundle)
        if self._clock is not None and not self.paused:
            if bundle.arrivals:
                self._clock.read(bundle.now_us, bundle.overlay)
            elif bundle.now_us >= self._clock.moves_at_us:
                self._clock.move(bundle.now_us, bundle.overlay)
        if bundle.arrivals:
            self._silence.records_came(bundle.now_us)
        elif not self.paused:
            self._silence.nothing(bundle.now_us)
        for number, arrival in enumerate(bundle.arrivals):
            bundle.try_(LINE, len(arrival.batch))
            bundle.try_(UNIT, len(arrival.batch))
            reply_to: Any = arrival.reply_to
            reply_to.duplicates = arrival.duplicates
            rows: Iterable[tuple[Any, bytes]] = zip(
                arrival.batch.keys, arrival.batch.rows().values, strict=True
            )
            if bundle.traced is not None:
                rows = bundle.traced.watched(rows, number, bundle.outputs.lengths)
            for key, raw in rows:
                reason = self._take(bundle, key, raw)
                reply_to.rejected += bool(reason)
                reply_to.accepted += not reason
                if reason:
                    letter = DeadLetter(
                        self._pipeline,
                        self._node,
                        self._spec.name,
                        reason,
                        key,
                        bytes(raw).decode("utf-8", "replace"),
                    )
                    letter.what = "injection"
                    bundle.dead_letter(letter, self._letter_us(before, bundle.now_us), what=LINE)
                    if reason.startswith(NO_UNIT):
                        bundle.fail(letter, UNIT)
        if bundle.arrivals:
            bundle.overlay.put(_STORE_KEY, pack(Position(0, self._max_timestamp, False)))

    def _take(self, bundle: Bundle, key: Any, raw: bytes) -> str:
        """Take a record; why it cannot be used ("": it was produced, or it is late and counted)."""
        bundle.count("records_in")
        try:
            value = self._decode(raw)
        except DAMAGE as ex:
            return f"not a valid JSON record: {ex}"
        if self._times.decimals and type(value) is not dict:
            value = without_decimals(value)
        if self._times and type(value) is dict and (wrong := self._times.check([value])):
            return wrong[0]
        stamps, problems = (
            self._timestamps.of([value]) if self._clock is None else ([self._clock.at_us], {})
        )
        problems.update(carried([value], self._most)[1])
        if problems:
            return problems[0]
        if is_too_far(stamps[0], bundle.now_us, self._spec.max_future_us):
            return too_far(stamps[0], self._spec.max_future_us)
        # Against the records before it, not against those before the bundle, nor by the length of a
        # silence: neither the size of a bundle nor a clock may decide which records are late. See
        # mistakes injected_records_are_late_by_bundles and injected_records_are_late_after_silence.
        if is_behind(stamps[0], self._reached_us):
            bundle.count("late")
            return ""
        self._max_timestamp = max(self._max_timestamp, stamps[0])
        bundle.outputs.produce(self._spec.name, key, value, stamps[0])
        return ""

    @property
    def _reached_us(self) -> int:
        """The watermark by the records that came, without the progress of silence."""
        if self._clock is not None:
            return self._clock.at_us
        return watermark_after(self._max_timestamp, self._spec.max_delay_us)

    def _letter_us(self, before: Hold, now_us: int) -> int:
        """The time of a letter, when the hold was ``before`` the bundle: the watermark here."""
        # Not the time of other streams: a letter about a rule of yesterday must not be late because
        # the records that it is for are of today.
        if before.at == IDLE_TIME and before.idle_us == MIN_TIME:
            return now_us
        return max(before.idle_us, self._reached_us, 0)

    def rest(self, active: bool, now_us: int) -> None:
        """Take nothing while ``active``."""
        self._end.rest(active)

    def finish(self) -> None:
        """Never take anything again."""
        self._end.finish()

    def hold(self, now_us: int) -> Hold:
        hold = self._own_hold()
        if hold.at != IDLE_TIME or self.fellows is None:
            return hold
        return hold._replace(idle_us=max(hold.idle_us, self.fellows.reached_us(now_us)))

    def _own_hold(self) -> Hold:
        """The hold that other streams have no part in."""
        if self._end.ended:
            return Hold()
        if self._clock is not None:
            return Hold(self._clock.at_us, "nothing has arrived since")
        idle = self._silence.idle or (self._closed and self._spec.idle_after_us is not None)
        if self._max_timestamp == MIN_TIME:
            return Hold(IDLE_TIME if idle else MIN_TIME, "nothing injected yet")
        if idle:
            idle_us = self._reached_us + self._silence.progress_us
            return Hold(IDLE_TIME, f"injection, {self._silence.in_words()}", idle_us)
        return Hold(self._reached_us, f"injection, newest record at {self._max_timestamp}")
