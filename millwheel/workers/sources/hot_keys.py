"""The hot keys of a partition in the store of its shard (see core/grouping/hot_keys.py)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from millwheel.core.formats.store_layout import HOT_KEYS, number8, number_from8, pack
from millwheel.core.grouping.hot_keys import Epoch, HotKeys
from millwheel.core.model.damage import checked
from millwheel.core.model.keys import key_bytes, key_from_bytes
from millwheel.ports import StateStore
from millwheel.workers.state.overlay import Overlay


class _Stored(msgspec.Struct, array_like=True):
    """An epoch but for its first position: keys by node, as bytes."""

    last: int
    tables: dict[str, list[bytes]]


_decode = checked(msgspec.msgpack.Decoder(_Stored).decode, "the hot keys of a partition")


def open_hot_keys(instances: Mapping[str, int], partition: str, store: StateStore, position: int) -> HotKeys | None:
    """The hot keys as they were committed; None where no node divides only those."""
    return HotKeys(instances, stored_epochs(partition, store), position) if instances else None


def stored_epochs(partition: str, store: StateStore) -> list[Epoch]:
    """All epochs of a partition that are kept, by position."""
    prefix = HOT_KEYS + pack(partition)
    found = ((number_from8(at[len(prefix) :]), _decode(bytes(data))) for at, data in store.scan(prefix))
    return [
        Epoch(first, stored.last, {node: frozenset(map(key_from_bytes, keys)) for node, keys in stored.tables.items()})
        for first, stored in found
    ]


def write_epoch(epoch: Epoch, partition: str, overlay: Overlay) -> None:
    """Store an epoch."""
    tables = {node: sorted(map(key_bytes, keys)) for node, keys in epoch.tables.items()}
    overlay.put(_store_key(epoch, partition), pack(_Stored(epoch.last, tables)))


def delete_epochs(epochs: list[Epoch], partition: str, overlay: Overlay) -> None:
    """Drop epochs."""
    for epoch in epochs:
        overlay.delete(_store_key(epoch, partition))


def _store_key(epoch: Epoch, partition: str) -> bytes:
    return HOT_KEYS + pack(partition) + number8(epoch.first)
