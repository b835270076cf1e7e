"""Sources: what outside records become, which of them are late, and how far the source's watermark
has come."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import msgspec

from millwheel.core.model.times import MAX_TIME, MIN_TIME, duration_text
from millwheel.core.pipeline.spec import StreamSpec
from tests.search.reference.engine import Node, World
from tests.search.reference.typed_fields import Unusable, microseconds, read_typed
from tests.search.script import PARTITION

_TYPES = {"int": int, "float": float, "str": str, "bool": bool}


@dataclass(slots=True)
class Partition:
    """A file, or what is one here. ``watermark``: what lies before it is late."""

    name: str
    watermark: int = MIN_TIME
    newest: int = MIN_TIME


class SourceNode(Node):
    """One stream from outside. ``stated``: its watermark is what the script says; else it follows
    the timestamps."""

    def __init__(self, world: World, spec: StreamSpec, stated: bool, check_future: bool) -> None:
        super().__init__(world, f"source.{spec.name}", (), (spec.name,))
        self.spec = spec
        self.ended = False
        self._stated = stated
        self._future = spec.max_future_us if check_future else None
        self._known = MIN_TIME
        self._partitions = {PARTITION: Partition(PARTITION)} if stated else {}
        self._schema = world.load(spec.schema) if spec.schema else None
        self._function = world.load(spec.timestamp) if ":" in spec.timestamp else None
        self._shown = any(sink.stream == spec.name for sink in world.spec.sinks)

    # --- what the script does ---------------------------------------------------------------------

    def push(self, value: Any, partition: str) -> None:
        """One record."""
        part = self._partitions.setdefault(partition, Partition(partition, self._known))
        self.counters["records_in"] += 1
        typed = value
        try:
            typed = self._typed(deepcopy(value))
            timestamp = self._timestamp(typed)
            if self._future is not None and timestamp > self.world.now + self._future:
                allowed = duration_text(self._future)
                raise Unusable(
                    f"timestamp {timestamp} µs lies more than {allowed} in the future"
                    " (watermark.max_future)"
                )
        except Unusable as ex:
            self.world.letter(self.name, str(ex), typed, 0)
            return
        late = timestamp < part.watermark
        if late and any(not node.delayed for node in self._consumers()):
            self.counters["late"] += 1
        self._send(typed, timestamp, partition, late)
        part.newest = max(part.newest, timestamp)
        if not self._stated:
            part.watermark = max(part.watermark, part.newest - self.spec.max_delay_us)

    def state_watermark(self, t: int, partition: str | None) -> None:
        """Nothing before ``t`` follows, in one partition or in all that there are and will be."""
        if partition is None:
            self._known = max(self._known, t)
            parts = list(self._partitions.values())
        else:
            parts = [self._partitions.setdefault(partition, Partition(partition, self._known))]
        for part in parts:
            part.watermark = max(part.watermark, t)

    def output(self) -> int:
        if self.ended:
            return MAX_TIME
        return min((part.watermark for part in self._partitions.values()), default=MIN_TIME)

    # --- one record -------------------------------------------------------------------------------

    def _send(self, value: Any, timestamp: int, partition: str, late: bool) -> None:
        given = _field(value, self.spec.id) if self.spec.id else None
        key = partition if given is None else given
        origin = f"{self.name}/{partition}"
        self.world.send(
            self.spec.name,
            key,
            value,
            timestamp,
            origin,
            late=late,
            sink=not (late and self._shown),
        )

    def _consumers(self) -> list[Node]:
        taking = [
            node
            for node in self.world.nodes.values()
            if self.spec.name in {i.stream for i in node.inputs}
        ]
        return [*taking, Node(self.world, "")] if self._shown else taking

    def _typed(self, value: Any) -> Any:
        if self._schema is not None:
            try:
                return msgspec.convert(value, self._schema)
            except msgspec.ValidationError as ex:
                raise Unusable(str(ex)) from ex
        if isinstance(value, dict):
            read_typed(value, self.spec)
            for name, kind in self.spec.fields.items():
                if not _fits(value.get(name), kind):
                    raise Unusable(f"field {name!r} is no {kind}")
                if kind == "float" and type(value.get(name)) is int:
                    value[name] = float(value[name])
        return value

    def _timestamp(self, value: Any) -> int:
        given = value
        if self._function is not None:
            try:
                given = self._function(value)
            except Exception as ex:
                raise Unusable(f"the timestamp function failed: {type(ex).__name__}: {ex}") from ex
        else:
            given = _field(value, self.spec.timestamp)
        if given is None:
            raise Unusable(f"missing timestamp: the record has no field {self.spec.timestamp!r}")
        return microseconds(given, self.spec.timestamp_unit_us)


def _fits(value: Any, kind: str) -> bool:
    """None is a field that is not there."""
    if value is None:
        return True
    if kind == "float":
        return type(value) in (int, float)
    return type(value) is _TYPES[kind]


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
