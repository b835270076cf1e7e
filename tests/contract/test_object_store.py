"""What data in an object store rests on, asked of each kind of store."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

import pytest
from obstore.store import MemoryStore

from millwheel.adapters.spaces.object_address import ObjectAddress
from millwheel.adapters.spaces.object_store import ObjectChangedError, ObjectStore
from millwheel.connect.kinds import build_sink, build_source
from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.core.pipeline.spec import SinkSpec, SourceSpec
from millwheel.errors import MillwheelError, SetupError
from tests.fakes.buckets import BUCKET, BUCKETS, BucketServer


@pytest.fixture(params=["memory", *BUCKETS])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    if request.param == "memory":
        found = ObjectStore(ObjectAddress("s3", BUCKET, ""), {})
        found._client = MemoryStore()
        return found
    server: BucketServer = request.getfixturevalue(request.param)
    server.fail()
    return server.store()


@pytest.fixture
def top() -> str:
    return uuid4().hex


def test_an_object_is_created_once(store: ObjectStore, top: str) -> None:
    assert store.head(f"{top}/a") is None
    assert store.write(f"{top}/a", b"one", None, 7)
    assert not store.write(f"{top}/a", b"two", None, 8)
    found = store.head(f"{top}/a")
    assert found is not None
    assert (found.size, found.number) == (3, 7)
    assert store.get(f"{top}/a") == b"one"


def test_an_object_is_replaced_only_if_nobody_else_has_replaced_it(
    store: ObjectStore, top: str
) -> None:
    store.write(f"{top}/a", b"one", None, 1)
    found = store.head(f"{top}/a")
    assert found is not None
    second = store.write(f"{top}/a", b"two", found.version, 2)
    assert second is not None
    assert store.write(f"{top}/a", b"old", found.version, 1) is None
    assert store.load(f"{top}/a") == (b"two", second)
    assert store.write(f"{top}/a", b"three", second) is not None
    store.delete(f"{top}/a")
    assert store.write(f"{top}/a", b"four", second) is None


def test_a_listing_goes_on_behind_a_name(store: ObjectStore, top: str) -> None:
    for name in ("a-1", "a-2", "b/c-1", "b/c-2"):
        store.stage(f"{top}/{name}", b"x")
    assert [found.key[33:] for found in store.list(f"{top}/")] == ["a-1", "a-2", "b/c-1", "b/c-2"]
    assert [found.key[33:] for found in store.list(f"{top}/a")] == ["a-1", "a-2"]
    assert [found.key[33:] for found in store.list(f"{top}/", after=f"{top}/a-2")] == [
        "b/c-1",
        "b/c-2",
    ]


def test_a_range_is_read_of_one_version_only(store: ObjectStore, top: str) -> None:
    store.stage(f"{top}/a", b"0123456789")
    found = store.head(f"{top}/a")
    assert found is not None
    assert store.read(f"{top}/a", 2, 5, found.version.tag) == b"234"
    assert store.read(f"{top}/a", 8, 50, found.version.tag) == b"89"
    store.stage(f"{top}/a", b"abcdefghij")
    with pytest.raises(ObjectChangedError, match="replaced"):
        store.read(f"{top}/a", 2, 5, found.version.tag)
    store.delete(f"{top}/a")
    store.delete(f"{top}/a")
    with pytest.raises(ObjectChangedError, match="gone"):
        store.read(f"{top}/a", 2, 5)
    assert store.get(f"{top}/a") is None


def test_a_bucket_that_is_not_there_is_named(store: ObjectStore) -> None:
    if isinstance(store._store(), MemoryStore):
        return
    other = ObjectStore(ObjectAddress(store.address.scheme, "not-there", ""), store._config)
    with pytest.raises(SetupError, match="no bucket 'not-there'"):
        other.get("x")
    with pytest.raises(SetupError, match="no bucket 'not-there'"):
        list(other.list("x"))


@pytest.mark.parametrize("roll", [None, {"size": "1MB", "every": "10m"}])
def test_rows_are_visible_once_and_are_read_back(
    store: ObjectStore, top: str, roll: dict[str, str] | None
) -> None:
    """The sink and the source by the address, as a pipeline names them; the first owner dies before
    it has published its second batch, and comes back as a zombie when the next one has."""
    if isinstance(store._store(), MemoryStore):
        return
    where = f"{store.address.scheme}://{BUCKET}/{top}"
    options = {
        "path": where,
        "format": "jsonl",
        "partition_by": ["country"],
        "config": store._config,
    }
    sink = build_sink(
        SinkSpec("out", "files", {**options, **({"roll": roll} if roll else {})}), "", "root-1"
    )
    sink.check("root-1")
    former = sink.open("sink.out-0", 1)
    committed = [
        former.prepare(SinkBatch(number, f"1-{number}", _records(number))) for number in range(2)
    ]
    former.publish(committed[0])
    successor = sink.open("sink.out-0", 2)
    for committable in committed:
        successor.publish(committable)
    successor.sweep(committed)
    successor.publish(successor.prepare(SinkBatch(2, "2-1", _records(2))))
    with suppress(MillwheelError):
        former.publish(committed[1])
    source = {"path": f"{where}/country=*/*.jsonl", "format": "jsonl", "config": store._config}
    read = [n for file in read_all(SourceSpec("files", source)) for n in file]
    assert sorted(read) == list(range(9))
    assert {found.key.split("/")[1] for found in store.list(f"{top}/country")} == {
        "country=DE",
        "country=FR",
    }


def _records(number: int) -> list[SinkRecord]:
    return [
        SinkRecord("k", {"n": n, "country": "DE" if n % 2 else "FR"}, 0)
        for n in range(3 * number, 3 * number + 3)
    ]


def read_all(spec: SourceSpec) -> list[list[int]]:
    """The numbers in each object, read as by a shard: the decision to begin is kept, then all is
    read."""
    source, found = build_source(spec, ""), []
    for partition in source.partitions():
        reader, chunk = source.open(partition), None
        reader.resume([(0, b"")])
        numbers: list[int] = []
        position = 0
        while chunk is None or not chunk.finished:
            chunk = reader.read(position, 100)
            position = chunk.next_position
            numbers += [value["n"] for value in chunk.values]
        found.append(numbers)
    return found
