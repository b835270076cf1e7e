"""The contract of the state store ports, on RocksDB and on the fake."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millwheel.adapters.ports import StateStores
from millwheel.adapters.spaces.files import Files, PosixFiles
from millwheel.adapters.stores.growing_store import SMALL_BYTES, GrowingStores
from millwheel.adapters.stores.rocksdb import RocksStores
from millwheel.errors import CorruptionError, InvariantError
from millwheel.tools.testing.memory.disk import MemoryDisk
from millwheel.tools.testing.memory.stores import MemoryStores


class Place:
    """Stores, the files they are on, and fresh names for checkpoints."""

    def __init__(self, stores: StateStores, files: Files, folder: str) -> None:
        self.stores = stores
        self.files = files
        self.folder = folder
        self._numbers = itertools.count()

    def path(self) -> str:
        return f"{self.folder}/checkpoint-{next(self._numbers)}"


def memory_place() -> Place:
    disk = MemoryDisk()
    return Place(MemoryStores(disk, "/scratch"), disk, "/scratch")


@pytest.fixture(params=("memory", "rocksdb", "small", "growing"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "memory":
        return memory_place()
    stores: StateStores = RocksStores(str(tmp_path / "stores"))
    if request.param != "rocksdb":
        small = SMALL_BYTES if request.param == "small" else 8
        stores = GrowingStores(stores, PosixFiles(), small, 0)
    return Place(stores, PosixFiles(), str(tmp_path))


def test_a_new_store_is_empty(place: Place) -> None:
    store = place.stores.open("traffic-0-1", None)
    assert store.get(b"k") is None
    assert store.get_many([b"k", b"l"]) == [None, None]
    assert list(store.scan(b"")) == []


def test_what_was_applied_is_read_by_every_later_call(place: Place) -> None:
    store = place.stores.open("s", None)
    store.apply([(b"a", b"1"), (b"b", b""), (b"c", b"3")], [])
    store.apply([(b"a", b"2")], [b"c", b"never there"])
    assert store.get(b"a") == b"2"
    assert store.get_many([b"b", b"c", b"a", b"a"]) == [b"", None, b"2", b"2"]
    assert store.get_many([]) == []
    assert list(store.scan(b"")) == [(b"a", b"2"), (b"b", b"")]


def test_a_delete_wins_over_a_put_of_the_same_commit(place: Place) -> None:
    store = place.stores.open("s", None)
    store.apply([(b"a", b"1")], [b"a"])
    assert store.get(b"a") is None


def test_a_commit_may_be_an_iterator(place: Place) -> None:
    store = place.stores.open("s", None)
    store.apply(((bytes([n]), b"v") for n in range(1, 4)), iter([b"\x02"]))
    assert [key for key, _ in store.scan(b"")] == [b"\x01", b"\x03"]


def test_a_scan_takes_the_prefix_and_byte_order_whatever_the_bytes(place: Place) -> None:
    store = place.stores.open("s", None)
    keys = [
        b"a",
        b"a\x00",
        b"a\xff",
        b"a\xff\xff",
        b"a\xff\xff\x01",
        b"b",
        b"\xff",
        b"\xff\xff",
        b"\xff\xff\x00",
    ]
    store.apply([(key, b"v") for key in keys], [])
    for prefix in (b"", b"a", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff", b"nothing"):
        assert [key for key, _ in store.scan(prefix)] == sorted(
            key for key in keys if key.startswith(prefix)
        )


def test_the_first_key_of_a_prefix_is_found_from_anywhere(place: Place) -> None:
    store = place.stores.open("s", None)
    assert store.first(b"", b"") is None
    keys = [b"", b"\x01", b"a", b"a\x00", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff"]
    store.apply([(key, b"v") for key in keys], [])
    for prefix in (b"", b"a", b"a\xff", b"b", b"\xff", b"nothing"):
        for since in (b"", b"a", b"a\x01", b"a\xff\xff\xff", b"b", b"\xff\xff\xff"):
            below = [key for key in keys if key.startswith(prefix) and key >= since]
            assert store.first(prefix, since) == min(below, default=None), (prefix, since)
    store.delete_range(b"a", b"b")
    assert store.first(b"a", b"") is None


@pytest.mark.parametrize("count", [3, 511, 512, 513, 2000])
def test_a_scan_sees_the_store_as_of_the_call(place: Place, count: int) -> None:
    store = place.stores.open("s", None)
    before = [(b"k%05d" % n, b"old") for n in range(count)]
    store.apply(before, [])
    scan = store.scan(b"k")
    store.apply([(b"k%05d" % n, b"new") for n in range(0, 2 * count, 2)], [b"k00001"])
    store.delete_range(b"k00002", b"k99999")
    assert list(scan) == before


def test_a_range_is_deleted_without_its_end(place: Place) -> None:
    store = place.stores.open("s", None)
    store.apply([(bytes([n]), b"v") for n in range(1, 10)], [])
    store.delete_range(b"\x03", b"\x06")
    store.delete_range(b"\x09", b"\x02")
    store.delete_range(b"\x07", b"\x07")
    assert [key[0] for key, _ in store.scan(b"")] == [1, 2, 6, 7, 8, 9]


def test_everything_can_be_deleted_and_the_store_still_opens(place: Place) -> None:
    store = place.stores.open("s", None)
    store.apply([(b"a", b"v")], [])
    store.delete_range(b"", b"\xff")
    path = place.path()
    store.checkpoint(path)
    assert list(place.stores.open("t", path).scan(b"")) == []


def test_a_checkpoint_holds_what_was_applied_before_it_and_nothing_after(place: Place) -> None:
    store = place.stores.open("s", None)
    store.apply([(b"a", b"1"), (b"gone", b"x")], [])
    store.apply([], [b"gone"])
    path = place.path()
    store.checkpoint(path)
    store.apply([(b"a", b"2"), (b"b", b"2")], [])
    copy = place.stores.open("copy", path)
    assert list(copy.scan(b"")) == [(b"a", b"1")]
    copy.apply([(b"c", b"3")], [])
    assert list(store.scan(b"")) == [(b"a", b"2"), (b"b", b"2")]


def test_a_checkpoint_is_moved_into_place(place: Place) -> None:
    store = place.stores.open("s", None)
    path = place.path()
    store.checkpoint(path)
    place.stores.open("copy", path)
    assert not place.files.exists(path)


def test_a_checkpoint_survives_the_store_it_was_made_of(place: Place) -> None:
    store = place.stores.open("s", None)
    store.apply([(b"a", b"1")], [])
    path = place.path()
    store.checkpoint(path)
    store.close()
    place.stores.open("s", None).close()
    assert place.stores.open("copy", path).get(b"a") == b"1"


def test_tables_of_an_earlier_checkpoint_are_the_same_files_in_the_next(place: Place) -> None:
    store = place.stores.open("s", None)
    store.apply([(b"many", b"v" * SMALL_BYTES * 3)], [])
    paths = []
    for number in range(3):
        store.apply([(b"k%d" % number, b"v" * 1000)], [])
        paths.append(place.path())
        store.checkpoint(paths[-1])
    tables = [{n for n in place.files.list_dir(path) if n.endswith(".sst")} for path in paths]
    assert [len(names) for names in tables] == [1, 2, 3]
    for name in tables[0]:
        identities = {place.files.identity(f"{path}/{name}") for path in paths}
        assert len(identities) == 1


def test_opening_a_shard_again_begins_anew(place: Place) -> None:
    store = place.stores.open("s", None)
    store.apply([(b"a", b"1")], [])
    store.close()
    assert place.stores.open("s", None).get(b"a") is None


def test_a_store_after_close_refuses_every_call(place: Place) -> None:
    store = place.stores.open("s", None)
    store.close()
    store.close()
    for call in (
        lambda: store.get(b"a"),
        lambda: store.get_many([b"a"]),
        lambda: store.apply([(b"a", b"1")], []),
        lambda: list(store.scan(b"")),
        lambda: store.first(b"", b""),
        lambda: store.checkpoint(place.path()),
    ):
        with pytest.raises(InvariantError):
            call()


def test_a_folder_that_is_no_checkpoint_is_refused(place: Place) -> None:
    path = place.path()
    place.files.make_dir(path)
    with pytest.raises(CorruptionError):
        place.stores.open("s", path)


_keys = st.binary(min_size=1, max_size=3).filter(lambda key: key != b"\x00")
_operations = st.lists(
    st.one_of(
        st.tuples(
            st.just("apply"), st.lists(st.tuples(_keys, st.binary(max_size=4))), st.lists(_keys)
        ),
        st.tuples(st.just("delete_range"), _keys, _keys),
        st.tuples(st.just("move"), st.none(), st.none()),
    ),
    max_size=12,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(operations=_operations, prefix=st.binary(max_size=2))
def test_any_history_ends_as_it_would_in_a_dict(
    place: Place, operations: list[tuple], prefix: bytes
) -> None:  # type: ignore[type-arg]
    model: dict[bytes, bytes] = {}
    store = place.stores.open("fuzz", None)
    for name, first, second in operations:
        if name == "apply":
            store.apply(first, second)
            model.update(first)
            for key in second:
                model.pop(key, None)
        elif name == "delete_range":
            store.delete_range(first, second)
            model = {key: value for key, value in model.items() if not first <= key < second}
        else:
            path = place.path()
            store.checkpoint(path)
            store.close()
            store = place.stores.open("fuzz", path)
    assert list(store.scan(prefix)) == sorted(
        entry for entry in model.items() if entry[0].startswith(prefix)
    )
    assert store.get_many(list(model)) == list(model.values())
    store.close()
