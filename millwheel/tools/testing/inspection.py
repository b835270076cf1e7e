"""A shard's state of a key, read from its store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millwheel.adapters.ports import StateStore
from millwheel.core.columns.batch import key_list
from millwheel.core.columns.groups_frame import END, KEY, START
from millwheel.core.formats.store_layout import (
    STATE,
    TIMER,
    WAITING,
    WINDOW,
    WINDOW_SET,
    key_prefix,
    pack,
    unpack,
)
from millwheel.core.model.keys import Key, KeyHash, key_hash
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.engine.workers.bundle.record_order import ASIDE_TAG
from millwheel.engine.workers.operators.keyed_joins.columns import ColumnJoinOperator
from millwheel.engine.workers.operators.ranked.columns import FirstRowsOperator
from millwheel.engine.workers.operators.ranked.over_columns import OverOperator
from millwheel.engine.workers.operators.windows.callback import CALLBACK_TAG
from millwheel.engine.workers.operators.windows.change_log import ChangeLogOperator
from millwheel.engine.workers.shard.opening import read_timers
from millwheel.engine.workers.shard.shard import Shard
from millwheel.engine.workers.state.cells import TTL_TAG
from millwheel.engine.workers.state.column_segments import segments_of
from millwheel.engine.workers.state.waiting_records import waiting_records
from millwheel.engine.workers.state.window_sets import read_window


def window_state(store: StateStore, key: Key, hashed: KeyHash = key_hash) -> dict[Any, Any]:
    """The state of an aggregation for a key, by slot; empty once all windows of the key are
    collected."""
    prefix = key_prefix(WINDOW, key, hashed(key))
    slots = {
        _slot(store_key[len(prefix) :]): read_window(store.get, store_key)
        for store_key, _ in store.scan(prefix)
    }
    for groups in segments_of(store):
        for owner, row in zip(key_list(groups[KEY]), groups.rows(named=True), strict=True):
            if owner == key:
                slots[row[START], row[END]] = row
    return slots


def _slot(store_key: bytes) -> Any:
    slot = unpack(store_key)
    return tuple(slot) if isinstance(slot, list) else slot


def timers_of(store: StateStore, key: Key) -> list[tuple[Domain, str, int]]:
    """(domain, tag, at) of the timers of a key, in the order of their times, without those of the
    system."""
    queues: dict[Domain, TimerQueue] = read_timers(store)
    timers = [
        (domain, tag.removeprefix(CALLBACK_TAG), at)
        for domain, queue in queues.items()
        for owner, tag, at in queue.items()
        if owner == key and not tag.removeprefix(CALLBACK_TAG).startswith((TTL_TAG, ASIDE_TAG))
    ]
    return sorted(timers, key=lambda timer: (timer[2], timer[1]))


def remembered(shards: Iterable[Shard]) -> dict[bytes, bytes]:
    """All state of the keys in the shards of a node, as it is stored."""
    entries: dict[bytes, bytes] = {}
    for shard in shards:
        store, operator = shard.store, shard.operator
        if isinstance(operator, ColumnJoinOperator | ChangeLogOperator):
            # one by one: which of them are in columns depends on how they were bundled
            entries.update((pack(row), pack(count)) for row, count in operator.kept().items())
            continue
        if isinstance(operator, FirstRowsOperator | OverOperator) and operator.in_columns:
            entries.update((pack(key), pack(rows)) for key, rows in operator.kept().items())
            continue
        for family in (STATE, WINDOW, WINDOW_SET, TIMER):
            entries.update(store.scan(family))
        # one by one: which of them are stored together depends on how they were bundled
        for row in waiting_records(store):
            entries[key_prefix(WAITING, row.key, key_hash(row.key)) + row.tag.encode()] = bytes(
                row.value
            )
    return entries
