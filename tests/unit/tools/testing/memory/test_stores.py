"""A store in memory is, after a checkpoint, what it was: whatever was put and deleted, and however
often."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.spaces.durable import make_dirs, write_all
from millwheel.errors import CorruptionError, InvariantError
from millwheel.tools.testing.memory.disk import MemoryDisk
from millwheel.tools.testing.memory.stores import MemoryStores

KEYS = st.binary(min_size=1, max_size=2)
STEPS = st.lists(
    st.tuples(
        st.just("apply"),
        st.dictionaries(KEYS, st.binary(max_size=2), max_size=3),
        st.sets(KEYS, max_size=2),
    )
    | st.tuples(st.just("range"), KEYS, KEYS)
    | st.just(("checkpoint",)),
    max_size=8,
)


@given(STEPS)
def test_it_holds_what_a_dict_would_and_so_does_its_checkpoint(steps: list[Any]) -> None:
    disk = MemoryDisk()
    make_dirs(disk, "/c")
    store, wanted = MemoryStores(disk, "/a").open("s", None), dict[bytes, bytes]()
    for number, step in enumerate(steps):
        if step[0] == "apply":
            puts = {key: value for key, value in step[1].items() if key not in step[2]}
            store.apply(puts.items(), step[2])
            wanted.update(puts)
            for key in step[2]:
                wanted.pop(key, None)
        elif step[0] == "range":
            store.delete_range(step[1], step[2])
            wanted = {key: value for key, value in wanted.items() if not step[1] <= key < step[2]}
        else:
            store.checkpoint(f"/c/{number}")
            other = MemoryStores(disk, f"/b{number}").open("s", f"/c/{number}")
            assert dict(other.scan(b"")) == wanted
    assert dict(store.scan(b"")) == wanted
    assert [key for key, _ in store.scan(b"")] == sorted(wanted)
    assert store.first(b"", b"") == min(wanted, default=None)
    assert store.get_many(sorted(wanted)) == [wanted[key] for key in sorted(wanted)]


def test_a_closed_store_is_used_by_nobody() -> None:
    store = MemoryStores(MemoryDisk(), "/a").open("s", None)
    store.close()
    with pytest.raises(InvariantError, match="used after it was closed"):
        store.get(b"k")


def test_a_damaged_or_missing_table_is_found() -> None:
    disk = MemoryDisk()
    make_dirs(disk, "/c")
    store = MemoryStores(disk, "/a").open("s", None)
    store.apply([(b"k", b"v")], [])
    store.checkpoint("/c/1")
    write_all(disk, disk.open_write("/c/1/000001.sst"), b"x", 20)
    with pytest.raises(CorruptionError, match="fails its checksum"):
        MemoryStores(disk, "/b").open("s", "/c/1")
    disk.make_dir("/c/2")
    with pytest.raises(CorruptionError, match="is not a store"):
        MemoryStores(disk, "/b").open("s", "/c/2")
