from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping, Sequence

import pytest

from millwheel.adapters.grpc.injection_client import InjectionResult, OutsideRecord
from millwheel.core.model.keys import key_hash
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import SetupError, UnavailableError
from millwheel.tools.client import inject as inject_module
from millwheel.tools.client.inject import DOUBLES_AGAIN, Identified, Injecting, line_batches


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
        shards = [
            ShardEntry(f"source.s-{i}", keys, self.owners[i], 1) for i, keys in enumerate(tile(4))
        ]
        return RangeTable("source.s", tuple(shards)), {"w0": "host:0", "w1": "host:1"}

    def inject(
        self, address: str, stream: str, shard: str, records: Sequence[OutsideRecord]
    ) -> InjectionResult:
        assert stream == "s"
        with self.lock:
            trouble = next(self.trouble, "")
            if trouble == "moved":
                return InjectionResult(moved=True)
            if trouble == "refused":
                raise UnavailableError("gone")
            known = self.taken.setdefault(shard, [])
            fresh = [record.id for record in records if record.id not in known]
            known.extend(fresh)
            if trouble == "reply lost":
                raise UnavailableError("gone")
            return InjectionResult(accepted=len(fresh), duplicates=len(records) - len(fresh))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(inject_module, "_RETRY_S", 0.0)
    return World()


def records(count: int) -> list[OutsideRecord]:
    return [OutsideRecord(f"e{i}", b"{}") for i in range(count)]


def send(world: World, given: Sequence[OutsideRecord], patience_s: float = 30.0) -> InjectionResult:
    sending = Injecting("s", world, world.look, patience_s)
    try:
        return sending.send(given)
    finally:
        sending.close()


def test_each_record_goes_to_the_owner_of_its_id_in_order(world: World) -> None:
    assert send(world, records(5_000)) == InjectionResult(accepted=5_000)
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
    monkeypatch.setattr(inject_module, "BATCH_BYTES", 100)
    assert send(world, [OutsideRecord(f"e{i}", b"x" * 60) for i in range(50)]).accepted == 50
    with pytest.raises(SetupError, match="too large"):
        send(world, [OutsideRecord("e", b"x" * 101)])


def ids_of(identified: Identified, lines: Sequence[bytes]) -> list[str]:
    return [record.id for record in identified.records(lines)]


def test_the_id_is_a_field_and_lines_without_it_are_records_of_their_own() -> None:
    lines = [
        b'{"id": "a"}',
        b'{"id": 7}',
        *([b'{"id": null}', b'{"id": ""}', b"broken", b"[1]"] * 2),
        b'{"id": "a"}',
    ]
    ids = ids_of(Identified("id"), lines)
    assert (ids[0], ids[1], ids[-1]) == ("a", "7", "a")
    assert len(set(ids)) == 10
    assert all(ids)
    assert [record.value for record in Identified("id").records(lines)] == lines


def test_equal_lines_without_an_id_are_different_records_in_one_input_and_in_two() -> None:
    first, second = Identified(""), Identified("")
    ids = ids_of(first, [b"{}"] * 3) + ids_of(first, [b"{}"]) + ids_of(second, [b"{}"] * 4)
    assert len(set(ids)) == 8


def test_an_input_that_is_repeated_under_its_name_has_the_same_ids_however_it_is_cut() -> None:
    lines = [b'{"n": 1}', b'{"n": 1}', b'{"n": 2}']
    whole, parts = Identified("", "monday"), Identified("", "monday")
    assert ids_of(whole, lines) == ids_of(parts, lines[:1]) + ids_of(parts, lines[1:])
    assert ids_of(Identified("", "tuesday"), lines) != ids_of(Identified("", "monday"), lines)
    assert len(set(ids_of(Identified("", "monday"), lines))) == 3


def test_who_gives_up_says_whether_the_input_may_be_injected_again(world: World) -> None:
    world.owners = ["gone"] * 4
    sending = Injecting("s", world, world.look, 0.0, DOUBLES_AGAIN)
    with pytest.raises(UnavailableError, match="injecting it again would double"):
        sending.send(records(1))
    sending.close()


def test_lines_come_as_they_are_there_and_the_last_needs_no_end() -> None:
    text = b'{"a": 1}\n\n  {"b": 2}  \r\n{"c": 3}'
    assert [line for lines in line_batches(io.BytesIO(text)) for line in lines] == [
        b'{"a": 1}',
        b'{"b": 2}',
        b'{"c": 3}',
    ]
    assert list(line_batches(io.BytesIO(b"\n\n"))) == []
