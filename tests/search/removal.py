"""What the watermark has left behind is removed, and what retractions have: results do not show it,
only stores that grow."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from millwheel.core.formats.store_layout import STATE
from millwheel.engine.workers.operators.callbacks import CallbackOperator
from millwheel.engine.workers.operators.keyed_joins.regular import Side
from millwheel.engine.workers.operators.windows.callback import WindowCallbackOperator
from millwheel.engine.workers.shard.shard import Shard
from millwheel.engine.workers.state.cells import TIME_BYTES, Typed, written_at
from millwheel.engine.workers.state.handles import ListCells, MapCells


def check_removed(shard: Shard) -> None:
    """AssertionError if an entry of state is kept that ended for good an eighth of its time to live
    ago, or that a join has for a stream without rows."""
    operator = shard.operator
    if not isinstance(operator, (CallbackOperator, WindowCallbackOperator)):
        return
    for handle in operator._state.handles.values():
        if handle.ttl_us is not None:
            _check(shard, handle, shard.watermark.input)
        if handle.kind is Side:
            for store_key, data in _entries(shard, handle):
                own = handle.decode(data if handle.ttl_us is None else data[TIME_BYTES:])
                assert own != Side(), f"{handle.name} has nothing, and is kept: {store_key!r}"


def _check(shard: Shard, handle: Typed, watermark: int) -> None:
    assert handle.ttl_us is not None
    most = handle.ttl_us + handle.ttl_us // 8 + 1
    for store_key, data in _entries(shard, handle):
        at = msgspec.msgpack.decode(data)[1] if isinstance(handle, ListCells) else written_at(data)
        assert watermark <= at + most, (
            f"{handle.name} of {at} is kept at watermark {watermark}: {store_key!r}"
        )


def _entries(shard: Shard, handle: Typed) -> Iterator[tuple[bytes, bytes]]:
    for store_key, data in shard.store.scan(STATE):
        _, named, rest = store_key.partition(handle.name.encode() + b"\0")
        if named and (not rest or isinstance(handle, MapCells)):
            yield store_key, data
