from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from millwheel.adapters.stores.rocksdb import RocksStore, RocksStores
from millwheel.errors import CorruptionError, InvariantError, SetupError, UnavailableError


def fill(store: RocksStore, count: int = 2000, prefix: bytes = b"k") -> None:
    store.apply([(prefix + b"%06d" % n, b"v" * 50) for n in range(count)], [])


def options_of(folder: Path) -> str:
    return max(folder.glob("OPTIONS-*")).read_text()


def test_the_write_ahead_log_stays_empty(tmp_path: Path) -> None:
    store = RocksStores(str(tmp_path)).open("s", None)
    fill(store)
    assert [path.stat().st_size for path in (tmp_path / "s").glob("*.log")] == [0]


def test_a_restored_store_has_its_bloom_filters_too(tmp_path: Path) -> None:
    stores = RocksStores(str(tmp_path))
    store = stores.open("s", None)
    store.checkpoint(str(tmp_path / "checkpoint"))
    stores.open("t", str(tmp_path / "checkpoint"))
    for name in ("s", "t"):
        assert "filter_policy=bloomfilter" in options_of(tmp_path / name)


def test_all_stores_share_one_write_budget(tmp_path: Path) -> None:
    stores = RocksStores(str(tmp_path), cache_bytes=8 << 20, write_bytes=1 << 20)
    opened = [stores.open(f"s-{n}", None) for n in range(3)]
    for round_ in range(40):
        for store in opened:
            fill(store, prefix=b"%d-" % round_)
    # Each has written 5 MB, far below what one store may hold back alone: the common budget made
    # them flush.
    assert all(list((tmp_path / f"s-{n}").glob("*.sst")) for n in range(3))
    assert all(len(list(store.scan(b"39-"))) == 2000 for store in opened)


def test_a_scan_that_was_left_open_does_not_keep_the_store_open(tmp_path: Path) -> None:
    stores = RocksStores(str(tmp_path))
    store = stores.open("s", None)
    fill(store)
    scan = store.scan(b"k")
    next(scan)
    store.close()
    with pytest.raises(InvariantError, match="closed"):
        list(scan)
    stores.open("s", None).close()


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    stores = RocksStores(str(tmp_path))
    store = stores.open("s", None)
    store.apply([(b"\x00", b"something else")], [])
    store.checkpoint(str(tmp_path / "checkpoint"))
    with pytest.raises(CorruptionError, match="identity"):
        stores.open("t", str(tmp_path / "checkpoint"))


def test_a_table_that_is_missing_or_damaged_is_told_as_corruption(tmp_path: Path) -> None:
    stores = RocksStores(str(tmp_path))
    store = stores.open("s", None)
    fill(store)
    for name in ("missing", "damaged"):
        store.checkpoint(str(tmp_path / name))
    next((tmp_path / "missing").glob("*.sst")).unlink()
    with pytest.raises(CorruptionError, match="restart"):
        stores.open("t", str(tmp_path / "missing"))
    table = next((tmp_path / "damaged").glob("*.sst"))
    data = bytearray(table.read_bytes())
    data[100:2000] = os.urandom(1900)
    table.unlink()
    table.write_bytes(data)
    with pytest.raises(CorruptionError, match="checksum"):
        list(stores.open("t", str(tmp_path / "damaged")).scan(b""))


def test_damage_found_while_reading_is_reported_as_corruption(tmp_path: Path) -> None:
    stores = RocksStores(str(tmp_path))
    store = stores.open("s", None)
    store.apply([(b"k%06d" % n, os.urandom(500)) for n in range(2000)], [])
    store.checkpoint(str(tmp_path / "checkpoint"))
    table = next((tmp_path / "checkpoint").glob("*.sst"))
    data = bytearray(table.read_bytes())
    data[400_000:600_000] = os.urandom(200_000)
    table.unlink()
    table.write_bytes(data)
    damaged = stores.open("t", str(tmp_path / "checkpoint"))
    with pytest.raises(CorruptionError, match="restart"):
        damaged.get(b"k001000")
    with pytest.raises(CorruptionError, match="restart"):
        damaged.get_many([b"k001000"])
    with pytest.raises(CorruptionError, match="restart"):
        list(damaged.scan(b"k"))


def test_a_scan_ends_where_its_prefix_ends_over_many_tables(tmp_path: Path) -> None:
    store = RocksStores(str(tmp_path)).open("s", None)
    for number in range(20):
        fill(store, prefix=b"%d-" % number)
        store.checkpoint(str(tmp_path / f"checkpoint-{number}"))
    for number in range(20):
        scan = store.scan(b"%d-" % number)
        fill(store, count=10, prefix=b"x")
        assert len(list(scan)) == 2000


def test_a_checkpoint_never_overwrites(tmp_path: Path) -> None:
    store = RocksStores(str(tmp_path)).open("s", None)
    (tmp_path / "there").mkdir()
    with pytest.raises(UnavailableError, match="there"):
        store.checkpoint(str(tmp_path / "there"))


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc", ".x"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupError):
        RocksStores(str(tmp_path)).open(name, None)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="prepare the local store"):
        RocksStores(str(tmp_path / "file" / "below")).open("s", None)


def test_checkpoints_on_one_thread_do_not_disturb_commits_on_another(tmp_path: Path) -> None:
    stores = RocksStores(str(tmp_path))
    store = stores.open("s", None)
    stop = threading.Event()
    made: list[str] = []

    def checkpoints() -> None:
        while not stop.is_set():
            path = str(tmp_path / f"checkpoint-{len(made)}")
            store.checkpoint(path)
            made.append(path)

    thread = threading.Thread(target=checkpoints)
    thread.start()
    for number in range(1, 300):
        store.apply([(b"a", b"%d" % number), (b"b", b"%d" % number)], [])
    stop.set()
    thread.join()
    assert made
    for index, path in enumerate(made[:5]):
        copy = stores.open(f"copy-{index}", path)
        assert copy.get(b"a") == copy.get(b"b")
