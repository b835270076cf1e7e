from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.spaces.files import PosixFiles
from millwheel.adapters.stores.growing_store import GrowingStore, GrowingStores, SharedMemory
from millwheel.adapters.stores.rocksdb import RocksStore, RocksStores
from millwheel.adapters.stores.small import NAME, SmallStore
from millwheel.errors import InvariantError, UnavailableError
from millwheel.tools.testing.memory.disk import MemoryDisk

PUTS = [(b"k%03d" % n, b"v" * 10) for n in range(100)]


@pytest.fixture
def stores(tmp_path: Path) -> GrowingStores:
    return GrowingStores(RocksStores(str(tmp_path / "stores")), PosixFiles(), 500, 0)


def test_a_shard_with_a_few_keys_opens_no_database(stores: GrowingStores, tmp_path: Path) -> None:
    store = stores.open("s", None)
    store.apply(PUTS[:10], [])
    store.checkpoint(str(tmp_path / "c"))
    assert [path.name for path in (tmp_path / "c").iterdir()] == [NAME]
    assert list(stores.open("t", str(tmp_path / "c")).scan(b"")) == PUTS[:10]
    assert not (tmp_path / "stores").exists()


def test_what_has_grown_moves_into_a_database_with_all_it_holds(
    stores: GrowingStores, tmp_path: Path
) -> None:
    store = stores.open("s", None)
    store.apply(PUTS[:10], [])
    store.apply(PUTS, [b"k000"])
    assert store.get_many([b"k000", b"k050"]) == [None, b"v" * 10]
    assert (tmp_path / "stores" / "s").exists()
    store.checkpoint(str(tmp_path / "c"))
    again = stores.open("t", str(tmp_path / "c"))
    assert isinstance(again, RocksStore)
    assert list(again.scan(b"")) == PUTS[1:]


def test_a_checkpoint_from_before_there_were_small_stores_opens_in_place(tmp_path: Path) -> None:
    rocks = RocksStores(str(tmp_path / "stores"))
    before = rocks.open("s", None)
    before.apply(PUTS, [])
    before.checkpoint(str(tmp_path / "c"))
    assert list(GrowingStores(rocks, PosixFiles()).open("t", str(tmp_path / "c")).scan(b"")) == PUTS


def test_a_store_that_has_grown_is_closed_as_any_other(stores: GrowingStores) -> None:
    store = stores.open("s", None)
    store.apply(PUTS, [])
    assert store.get(b"k001") == b"v" * 10
    store.close()
    with pytest.raises(InvariantError, match="after it was closed"):
        store.get(b"k001")


def test_a_database_that_cannot_be_opened_leaves_the_small_store_whole() -> None:
    def grow() -> RocksStore:
        raise UnavailableError("no space left")

    small = SmallStore(MemoryDisk(), "s")
    store = GrowingStore(small, 500, grow)
    with pytest.raises(UnavailableError, match="no space"):
        store.apply(PUTS, [])
    assert list(store.scan(b"")) == PUTS


def test_large_stores_stay_in_memory_while_there_is_enough_for_all_of_them(tmp_path: Path) -> None:
    stores = GrowingStores(RocksStores(str(tmp_path / "stores")), PosixFiles(), 500, 40_000)
    first, second, third = (stores.open(name, None) for name in ("first", "second", "third"))
    for store in (first, second, third):  # each takes 100 * (14 + 150) bytes
        store.apply(PUTS, [])
    assert [path.name for path in (tmp_path / "stores").iterdir()] == ["third"]
    assert list(third.scan(b"")) == PUTS
    first.close()
    stores.open("fourth", None).apply(PUTS, [])
    assert not (tmp_path / "stores" / "fourth").exists()


def test_a_store_that_shrinks_gives_its_memory_back(tmp_path: Path) -> None:
    stores = GrowingStores(RocksStores(str(tmp_path / "stores")), PosixFiles(), 500, 20_000)
    first, second = stores.open("first", None), stores.open("second", None)
    first.apply(PUTS, [])
    first.apply([], [key for key, _ in PUTS])
    first.apply([(b"k", b"v" * 3_000), (b"k", b"")], [])  # so much was written that it is counted
    second.apply(PUTS, [])
    assert not (tmp_path / "stores").exists()


def test_no_store_takes_all_memory(tmp_path: Path) -> None:
    stores = GrowingStores(RocksStores(str(tmp_path / "stores")), PosixFiles())
    stores.open("s", None).apply([(b"k%d" % n, b"v" * (1 << 20)) for n in range(15)], [])
    assert not (tmp_path / "stores").exists()
    stores.open("s", None).apply([(b"k%d" % n, b"v" * (1 << 20)) for n in range(17)], [])
    assert (tmp_path / "stores" / "s").exists()


def test_memory_that_is_not_there_is_not_held() -> None:
    shared = SharedMemory(100)
    assert shared.hold(0, 60)
    assert not shared.hold(0, 41)
    assert shared.hold(60, 100)
    assert shared.hold(100, 0)
