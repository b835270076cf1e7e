from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping, Sequence

import pytest

from millwheel.adapters.injection_client import Outside, Taken
from millwheel.core.keys import key_hash
from millwheel.core.ranges import tile
from millwheel.core.table import RangeTable, ShardEntry
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch import injecting
from millwheel.launch.injecting import Injecting, line_batches, with_ids


class World:
    """Four shards on two workers that remember what they took."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.taken: dict[str, list[str]] = {}
        self.trouble: Iterator[str] = iter(())
        self.looks = 0
        self.owners = ["w0", "w1", "w0", "w1"]

    def look(self) -> tuple[RangeTable | None, Mapping[str, str]]:
        self.looks += 1
        shards = [ShardEntry(f"source.s-{i}", keys, self.owners[i], 1) for i, keys in enumerate(tile(4))]
        return RangeTable("source.s", tuple(shards)), {"w0": "host:0", "w1": "host:1"}

    def inject(self, address: str, stream: str, shard: str, records: Sequence[Outside]) -> Taken:
        assert stream == "s"
        with self.lock:
            trouble = next(self.trouble, "")
            if trouble == "moved":
                return Taken(moved=True)
            if trouble == "refused":
                raise UnavailableError("gone")
            known = self.taken.setdefault(shard, [])
            fresh = [record.id for record in records if record.id not in known]
            known.extend(fresh)
            if trouble == "reply lost":
                raise UnavailableError("gone")
            return Taken(accepted=len(fresh), duplicates=len(records) - len(fresh))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(injecting, "_RETRY_S", 0.0)
    return World()


def records(count: int) -> list[Outside]:
    return [Outside(f"e{i}", b"{}") for i in range(count)]


def send(world: World, given: Sequence[Outside], patience_s: float = 30.0) -> Taken:
    sending = Injecting("s", world, world.look, patience_s)
    try:
        return sending.send(given)
    finally:
        sending.close()


def test_each_record_goes_to_the_owner_of_its_id_in_order(world: World) -> None:
    assert send(world, records(5_000)) == Taken(accepted=5_000)
    ranges = dict(zip((f"source.s-{i}" for i in range(4)), tile(4), strict=True))
    for shard, ids in world.taken.items():
        assert all(key_hash(record_id) in ranges[shard] for record_id in ids)
        assert ids == sorted(ids, key=lambda text: int(text[1:]))


@pytest.mark.parametrize("trouble", ["moved", "refused", "reply lost"])
def test_what_is_unclear_is_sent_again_and_counts_once(world: World, trouble: str) -> None:
    world.trouble = iter([trouble] * 5)
    done = send(world, records(1_000))
    assert done.accepted + done.duplicates == 1_000
    assert sum(len(ids) for ids in world.taken.values()) == 1_000
    assert world.looks > 1


def test_a_shard_without_a_living_owner_is_waited_for(world: World) -> None:
    world.owners[2] = "w9"
    with pytest.raises(UnavailableError, match="injecting the same input again is safe"):
        send(world, records(100), patience_s=0.0)
    world.owners[2] = "w0"
    done = send(world, records(100))
    assert done.duplicates > 0
    assert done.accepted + done.duplicates == 100


def test_large_records_are_cut_into_messages_and_too_large_ones_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injecting, "BATCH_BYTES", 100)
    assert send(world, [Outside(f"e{i}", b"x" * 60) for i in range(50)]).accepted == 50
    with pytest.raises(SetupError, match="too large"):
        send(world, [Outside("e", b"x" * 101)])


def test_the_id_is_a_field_or_the_line_itself() -> None:
    lines = [b'{"id": "a"}', b'{"id": 7}', b'{"id": null}', b"broken", b"[1]"]
    ids = [record.id for record in with_ids(lines, "id")]
    assert ids[:2] == ["a", "7"]
    assert ids[2:] == [record.id for record in with_ids(lines[2:], "")]
    assert len(set(ids)) == 5
    assert [record.value for record in with_ids(lines, "id")] == lines


def test_lines_come_as_they_are_there_and_the_last_needs_no_end() -> None:
    text = b'{"a": 1}\n\n  {"b": 2}  \r\n{"c": 3}'
    assert [line for lines in line_batches(io.BytesIO(text)) for line in lines] == [
        b'{"a": 1}',
        b'{"b": 2}',
        b'{"c": 3}',
    ]
    assert list(line_batches(io.BytesIO(b"\n\n"))) == []
