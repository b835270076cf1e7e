"""The epochs of divided keys of a partition in the store of its shard (see
core/grouping/epochs.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from millwheel.adapters.ports import StateStore
from millwheel.core.formats.store_layout import KEY_EPOCHS, number8, number_from8, pack
from millwheel.core.grouping.catalogue import BY_NUMBER
from millwheel.core.grouping.epochs import Epoch, KeyEpochs, Rule
from millwheel.core.grouping.tables import EpochTable
from millwheel.core.model.damage import checked
from millwheel.core.model.keys import key_bytes, key_from_bytes
from millwheel.engine.workers.state.overlay import Overlay


class _Table(msgspec.Struct, array_like=True):
    """A table but for its first position; routes by key, as bytes."""

    epoch: int
    prices: list[float]
    routes: list[tuple[bytes, list[int]]]
    buckets: list[int]


class _Stored(msgspec.Struct, array_like=True):
    """An epoch but for its first position. ``hot``: the hot keys of nodes whose table has nothing
    else, as bytes; ``tables`` those of all others."""

    last: int
    hot: dict[str, list[bytes]]
    tables: dict[str, _Table] = {}


_decode = checked(msgspec.msgpack.Decoder(_Stored).decode, "how keys of a partition are divided")


def open_key_epochs(
    rules: Mapping[str, Rule],
    partition: str,
    store: StateStore,
    position: int,
    counts: Mapping[str, Sequence[int]],
) -> KeyEpochs | None:
    """The epochs as they were committed, with the ``counts`` of the position; None where no node
    divides keys by them."""
    return (
        KeyEpochs(rules, stored_epochs(partition, store, rules), position, counts)
        if rules
        else None
    )


def stored_epochs(partition: str, store: StateStore, rules: Mapping[str, Rule]) -> list[Epoch]:
    """All epochs of a partition that are kept, by position."""
    prefix = KEY_EPOCHS + pack(partition)
    epochs = []
    for at, data in store.scan(prefix):
        first, stored = number_from8(at[len(prefix) :]), _decode(bytes(data))
        tables = {node: _read(table, first) for node, table in stored.tables.items()}
        for node, keys in stored.hot.items():
            if node in rules:
                instances = rules[node].instances
                routes = dict.fromkeys(map(key_from_bytes, keys), tuple(range(instances)))
                tables[node] = EpochTable(0, first + 1, (1.0,) * instances, routes)
        epochs.append(Epoch(first, stored.last, tables))
    return epochs


def write_epoch(epoch: Epoch, rules: Mapping[str, Rule], partition: str, overlay: Overlay) -> None:
    """Store an epoch."""
    by_number = {node for node, rule in rules.items() if rule.grouping in BY_NUMBER}
    hot = {
        node: sorted(map(key_bytes, table.routes))
        for node, table in epoch.tables.items()
        if node in by_number
    }
    tables = {
        node: _written(table) for node, table in epoch.tables.items() if node not in by_number
    }
    overlay.put(_store_key(epoch, partition), pack(_Stored(epoch.last, hot, tables)))


def delete_epochs(epochs: list[Epoch], partition: str, overlay: Overlay) -> None:
    """Drop epochs."""
    for epoch in epochs:
        overlay.delete(_store_key(epoch, partition))


def _read(stored: _Table, first: int) -> EpochTable:
    routes = {key_from_bytes(key): tuple(route) for key, route in stored.routes}
    return EpochTable(stored.epoch, first + 1, tuple(stored.prices), routes, tuple(stored.buckets))


def _written(table: EpochTable) -> _Table:
    routes = [(key_bytes(key), list(route)) for key, route in table.routes.items()]
    return _Table(table.epoch, list(table.prices), routes, list(table.buckets))


def _store_key(epoch: Epoch, partition: str) -> bytes:
    return KEY_EPOCHS + pack(partition) + number8(epoch.first)
