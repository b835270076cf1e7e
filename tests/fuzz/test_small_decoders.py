"""What shards, savepoints, roots and ZooKeeper hold in small pieces: damaged, each is told in a
sentence of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128_hexdigest

from millwheel.adapters.spaces.object_space import ObjectContent
from millwheel.adapters.spaces.object_store import ObjectVersion
from millwheel.connect.sinks.files.latest import Replacement
from millwheel.connect.sinks.files.latest import _unpack as unpack_replacement
from millwheel.connect.sinks.files.sink import FileCommittable
from millwheel.connect.sinks.files.sink import _unpack as unpack_committable
from millwheel.control.roots.inputs import _kept
from millwheel.control.roots.lease import _decoded
from millwheel.control.roots.root import COMPLETED, IDENTITY, _identity, read_completed, read_run
from millwheel.control.roots.shipment import unpack as unpack_shipment
from millwheel.control.roots.shipping import BLUEPRINT_FILE, PARAMS_FILE, load_shipped
from millwheel.control.savepoints.blueprint import Blueprint
from millwheel.control.savepoints.orders import (
    OrderAnswer,
    Phase,
    SavepointOrder,
    Standing,
    answers_to,
    encode,
    standing_order,
)
from millwheel.control.savepoints.record import (
    RECORD_FILE,
    SavedShard,
    SavepointRecord,
    encode_record,
    read_record,
)
from millwheel.control.savepoints.upgrade import kept_blueprint
from millwheel.core.formats.store_layout import (
    Meta,
    PendingForm,
    Position,
    decode_meta,
    decode_pending,
    decode_position,
    encode_meta,
    pack,
)
from millwheel.core.model.damage import checked
from millwheel.core.model.ranges import tile
from millwheel.engine.workers.delivery.high_water_marks import (
    HighWaterMarks,
    decode_high_water_marks,
    encode_high_water_marks,
)
from millwheel.errors import CorruptionError, MillwheelError
from tests.fuzz.test_decoders import PLAIN, damaged, fuzz, value_or_corruption

HOSTILE = [
    *(b"", b"\x00", b"[" * 200_000, b"\x91" * 200_000, b'{"a":' * 100_000),
    *(
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc1",
        b'"\xff"',
        b"{}",
        b"[]",
        b"null",
        b"\x90",
        b"\x80",
    ),
]
ORDER = SavepointOrder("s1", 3, Phase.SAVE, "/saved", cut={"hits-0": Standing(2, 40)})
MARKS = HighWaterMarks(tuple((piece, number) for number, piece in enumerate(tile(3))))

SMALL: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "meta": (decode_meta, encode_meta(Meta(7, 8, 9, {"records_in": 3}, 10, 11, 12))),
    "position": (decode_position, encode_meta(Position(7, 8, True))),
    "mark": (decode_high_water_marks, encode_high_water_marks(300)),
    "marks of a merge": (decode_high_water_marks, encode_high_water_marks(MARKS)),
    "pending productions": (
        decode_pending,
        pack(PendingForm("hits-0", [b"one", b"two"], [{"n": b"\1"}, {}])),
    ),
    "committable of a file": (
        unpack_committable,
        pack(FileCommittable("part-0.tmp", "part-0.jsonl", 1, 3, 9, b"abc")),
    ),
    "committable of current rows": (unpack_replacement, pack(Replacement("a.tmp", "a.csv"))),
    "order": (lambda data: standing_order({"s1-3": data}), encode(ORDER)),
    "answer": (
        lambda data: answers_to(ORDER, {"w0": data}),
        encode(OrderAnswer("s1", 3, ORDER.cut, "full")),
    ),
}


@pytest.mark.parametrize("name", SMALL)
@fuzz
@given(data=st.data())
def test_damaged_state_and_orders_give_a_value_or_a_corruption_error(
    name: str, data: st.DataObject
) -> None:
    decode, whole = SMALL[name]
    value_or_corruption(decode, data.draw(damaged(whole)))


@pytest.mark.parametrize("name", SMALL)
@fuzz
@given(value=PLAIN)
def test_any_well_formed_message_is_a_value_or_corrupt(name: str, value: Any) -> None:
    decode, _ = SMALL[name]
    value_or_corruption(decode, msgspec.msgpack.encode(value))
    value_or_corruption(decode, msgspec.json.encode(value))


@pytest.mark.parametrize("name", SMALL)
def test_hostile_bytes_are_refused_and_what_was_written_is_read(name: str) -> None:
    decode, whole = SMALL[name]
    assert decode(whole) is not None
    for data in HOSTILE:
        value_or_corruption(decode, data)
    with pytest.raises(CorruptionError):
        decode(b"\xc1")


def test_marks_whose_ranges_leave_a_gap_are_corrupt() -> None:
    first, _, third = MARKS.pieces
    for pieces in ((first, third), ()):
        with pytest.raises(CorruptionError, match="follow each other"):
            decode_high_water_marks(
                pack([(piece.lo, piece.hi - 1, mark) for piece, mark in pieces])
            )
    assert decode_high_water_marks(encode_high_water_marks(MARKS)) == MARKS


@pytest.mark.parametrize("bad", ["../x", "/etc/passwd", "a/b", "", "a\0b"])
def test_committables_cannot_name_files_elsewhere(bad: str) -> None:
    for temp, final in ((bad, "b"), ("a", bad)):
        with pytest.raises(CorruptionError, match="not a name of a file"):
            unpack_committable(msgspec.msgpack.encode([temp, final, 1, 1, 1, b""]))
        with pytest.raises(CorruptionError, match="not a name of a file"):
            unpack_replacement(msgspec.msgpack.encode([temp, final]))


def test_a_decoder_that_meets_a_bug_of_ours_does_not_hide_it() -> None:
    def decode(data: bytes) -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        checked(decode, "anything")(b"")


# --- files of roots and savepoints


RECORD = SavepointRecord(
    "s",
    "i",
    "/root",
    "now",
    True,
    3,
    Blueprint("p", {}),
    [SavedShard("n", "n-0", "0", "1" + "0" * 16, 1, 2)],
)


def in_file(name: str, read: Callable[[Path], Any]) -> Callable[[Path, bytes], Any]:
    """A reader of a file in a folder as a decoder of its content."""

    def decode(folder: Path, data: bytes) -> Any:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        return read(folder)

    return decode


FILES: dict[str, tuple[Callable[[Path, bytes], Any], bytes]] = {
    "savepoint": (in_file(RECORD_FILE, read_record), encode_record(RECORD)),
    "run.json": (
        in_file("run.json", read_run),
        b'{"pipeline":"p","instance":"i","zookeeper":"127.0.0.1:1/x","driver_pid":7,"started":"now"}',
    ),
    "identity": (in_file(IDENTITY, lambda folder: _identity(folder, "p")),
    b'{"pipeline":"p","instance":"ab12"}'),
    "summary": (in_file(COMPLETED, read_completed), b'{"records": 7, "per_s": 1.5}'),
    "inputs": (in_file("s.json", lambda folder: _kept(folder / "s.json")),
    b'[{"name":"a"},{"name":"b"}]'),
    "blueprint": (in_file(f"pipeline/{BLUEPRINT_FILE}", kept_blueprint),
    msgspec.json.encode(Blueprint("p", {}))),
    "parameters": (in_file(f"pipeline/{PARAMS_FILE}", lambda folder: load_shipped(str(folder))),
    b'{"input":"a"}'),
    "shipment": (
        lambda folder, data: unpack_shipment(data, folder),
        msgspec.msgpack.encode({"pipeline/a.yaml": b"x", "inputs/s.json": b"[]"}),
    ),
    "lease": (
        lambda _, data: _decoded(ObjectContent(data, ObjectVersion("1")), "driver.json"),
        b'{"who":"a","here":"b","pid":1,"life":"c","beat":2}',
    ),
}  # fmt: skip


def value_or_sentence(decode: Callable[[Path, bytes], Any], folder: Path, data: bytes) -> None:
    """Nothing but our own errors, which say something."""
    try:
        decode(folder, data)
    except MillwheelError as error:
        if not str(error).strip():
            raise


@pytest.mark.parametrize("name", FILES)
@fuzz
@given(data=st.data())
def test_damaged_files_give_a_value_or_a_sentence(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    decode, whole = FILES[name]
    value_or_sentence(decode, tmp_path, data.draw(damaged(whole)))


@pytest.mark.parametrize("name", FILES)
def test_hostile_files_give_a_sentence(tmp_path: Path, name: str) -> None:
    for data in HOSTILE:
        value_or_sentence(FILES[name][0], tmp_path, data)


@fuzz
@given(value=PLAIN)
def test_any_json_under_the_checksum_of_a_savepoint_is_a_sentence(
    tmp_path: Path, value: Any
) -> None:
    body = msgspec.json.encode(value)
    sealed = msgspec.json.encode(
        {"checksum": xxh3_128_hexdigest(body), "savepoint": msgspec.Raw(body)}
    )
    with pytest.raises(MillwheelError):
        FILES["savepoint"][0](tmp_path, sealed)


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("parameters", "shipment")])
def test_a_whole_file_is_read(tmp_path: Path, name: str) -> None:
    decode, whole = FILES[name]
    assert decode(tmp_path, whole) is not None
