"""Bytes of strangers, and damaged bytes of our own: each decoder answers with a value or with its
documented error.

``MILLWHEEL_FUZZ=100000`` gives every test so many examples; 60 otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from millwheel.adapters.ports import Manifest
from millwheel.adapters.snapshots.manifest import decode_manifest, encode_manifest
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.formats.codec import (
    Commit,
    decode_batch,
    decode_commit,
    encode_batch,
    encode_commit,
)
from millwheel.core.formats.journal_segment import (
    JournalEnd,
    SegmentHeader,
    decode_entries,
    decode_header,
    decode_sealed_end,
    encode_group,
    encode_header,
    encode_sealed_end,
    find_later_group,
    valid_prefix,
)
from millwheel.core.model.keys import check_key
from millwheel.core.model.range_table import Ancestor, Parent, RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.records import Batch
from millwheel.engine.workers.bundle.hangs import Hang, decode_hang, encode_hang
from millwheel.errors import CorruptionError, PipelineError
from millwheel.language.spec import load_pipeline

EXAMPLES = int(os.environ.get("MILLWHEEL_FUZZ", "60"))
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=2_000,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)

HEADER = SegmentHeader("w0-abc", 3, 7, bytes(range(16)))
START = encode_header(HEADER)
SEED = decode_header(START).seed
SEGMENT = (
    START + encode_group(SEED, 7, [b"one", b"", b"three"]) + encode_group(SEED, 8, [b"x" * 40])
)
TABLE = RangeTable(
    "hits",
    tuple(
        ShardEntry(
            *(
                f"hits-{i}",
                r,
                "w0-abc",
                i,
                (Ancestor("w1-def", 1, 100, -1), Ancestor("w2-abc", 2, -1, 7)),
                "w3-abc",
            ),
            split_at=r.lo + 1,
            parents=(Parent("hits-7", r, 1, 12),),
        )
        for i, r in enumerate(tile(3))
    ),
    named=9,
).encode()
MANIFEST = encode_manifest(
    Manifest("hits-0", 3, 2, 7, 40, {"CURRENT": ("7-40.0123abcd-CURRENT", 16, "ab" * 16)})
)
HANG = Hang("n", "n-0", 1, "record", "'k'", b"\x91\x01", "c.py:1 in f", "1m")
BATCH = encode_batch(
    Batch("hits", [1, 2], [10, 20], ["a", ("b", 3)], [msgspec.Raw(b"\x01")] * 2, ["i", "j"], 5)
)
COLUMNS = encode_batch(
    ColumnBatch(
        "hits", np.array([1, 2]), np.array([10, 20]), pl.Series([1, 2]), pl.DataFrame({"n": [1, 2]})
    )
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """``whole`` with some bytes changed, cut out, doubled or cut off; or bytes of chance alone."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["set", "cut", "insert", "end", "chance"])):
            case "set" if data:
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at : at + draw(st.integers(1, 16))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=12))
            case "end":
                del data[at:]
            case _:
                data = bytearray(draw(st.binary(max_size=80)))
    return bytes(data)


def value_or_corruption(decode: Callable[[bytes], Any], data: bytes) -> Any:
    """What ``decode`` gives, None for its documented error; the error must say something."""
    try:
        return decode(data)
    except CorruptionError as error:
        if not str(error).strip():
            raise
        return None


DECODERS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "segment header": (decode_header, START),
    "commit": (decode_commit, encode_commit(Commit("hits-0", 3, 9, [(b"k", b"v")], [b"d"]))),
    "sealed end": (decode_sealed_end, encode_sealed_end("w0-abc", JournalEnd(2, 300))),
    "range table": (lambda data: RangeTable.decode(data, 1), TABLE),
    "manifest": (decode_manifest, MANIFEST),
    "delivery in rows": (decode_batch, BATCH),
    "delivery in columns": (decode_batch, COLUMNS),
    "note about a hang": (
        decode_hang,
        encode_hang(Hang("n", "n-0", 1, "record", "'k'", b"\x91\x01", "c.py:1 in f", "1m")),
    ),
}


@pytest.mark.parametrize("name", DECODERS)
@fuzz
@given(data=st.data())
def test_damaged_bytes_give_a_value_or_a_corruption_error(name: str, data: st.DataObject) -> None:
    decode, whole = DECODERS[name]
    value_or_corruption(decode, data.draw(damaged(whole)))


@pytest.mark.parametrize("name", DECODERS)
def test_what_was_written_is_read(name: str) -> None:
    decode, whole = DECODERS[name]
    assert decode(whole) is not None


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"[" * 200_000, b"\x91" * 200_000, b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff", b"\xc1"]
)  # fmt: skip
def test_deep_nests_and_lengths_that_lie_are_refused(name: str, data: bytes) -> None:
    with pytest.raises(CorruptionError):
        DECODERS[name][0](data)


@fuzz
@given(st.data())
def test_a_damaged_segment_yields_only_groups_that_were_written(data: st.DataObject) -> None:
    bytes_ = data.draw(damaged(SEGMENT))
    opened = value_or_corruption(decode_header, bytes_)
    if opened is None or opened.header != HEADER:
        return
    prefix = valid_prefix(bytes_, opened)
    find_later_group(bytes_, opened, prefix)
    read = [decode_entries(bytes_, body) for body in prefix.bodies]
    assert read == [[b"one", b"", b"three"], [b"x" * 40]][: len(read)]


@fuzz
@given(st.binary(max_size=40), st.integers(0, 2**32 - 1))
def test_a_group_whose_entry_count_lies_is_corrupt_or_fits(rest: bytes, count: int) -> None:
    body = count.to_bytes(4, "little") + rest
    entries = value_or_corruption(lambda data: decode_entries(data, (0, len(data))), body)
    assert entries is None or sum(map(len, entries)) + 4 * (count + 1) == len(body)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=8,
)


@fuzz
@given(st.lists(PLAIN, max_size=8))
def test_a_well_formed_message_of_anything_is_a_batch_with_usable_keys_or_corrupt(
    fields: list[Any],
) -> None:
    check_batch(msgspec.msgpack.encode(fields))


@fuzz
@given(st.lists(PLAIN, min_size=1, max_size=1), st.none() | st.lists(PLAIN, min_size=1, max_size=1))
def test_keys_of_a_delivery_can_be_looked_up(keys: list[Any], ids: list[Any] | None) -> None:
    check_batch(msgspec.msgpack.encode(["hits", b"", bytes(8), keys, [1], ids, 0]))


def check_batch(data: bytes) -> None:
    batch = value_or_corruption(decode_batch, data)
    if batch is not None:
        assert [check_key(key) for key in batch.keys] == batch.keys
        hash(tuple(batch.keys))


@fuzz
@given(PLAIN)
def test_any_json_in_place_of_a_table_or_a_manifest_is_corrupt(value: Any) -> None:
    data = msgspec.json.encode(value)
    assert value_or_corruption(lambda raw: RangeTable.decode(raw, 0), data) is None
    sealed = msgspec.json.encode(
        {"checksum": xxh3_128_hexdigest(data), "manifest": msgspec.Raw(data)}
    )
    assert value_or_corruption(decode_manifest, sealed) is None


@fuzz
@given(st.binary(max_size=60).filter(lambda text: b"\n" not in text))
def test_a_sealed_end_with_a_right_checksum_and_wrong_words_is_corrupt(text: bytes) -> None:
    line = text + b" " + f"{xxh3_64_intdigest(text):016x}".encode() + b"\n"
    value_or_corruption(decode_sealed_end, line)


BAD_NAMES = [
    "../x",
    "..",
    ".",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "a\x00b",
    "",
    "-rf",
    "x" * 200,
    "a\nb",
    "ä",
]


@pytest.mark.parametrize("bad", BAD_NAMES)
@pytest.mark.parametrize("place", ["shard", "computation", "owner", "next_owner", "incarnation"])
def test_names_in_a_range_table_cannot_lead_out_of_the_root(place: str, bad: str) -> None:
    raw = msgspec.json.decode(TABLE)
    row = raw["shards"][0]
    if place == "computation":
        raw["computation"] = bad
    elif place == "incarnation":
        row["lineage"][0][0] = bad
    else:
        row[place] = bad
    if bad == "" and place in ("owner", "next_owner"):
        assert RangeTable.decode(msgspec.json.encode(raw), 0)
        return
    with pytest.raises(CorruptionError, match="cannot name"):
        RangeTable.decode(msgspec.json.encode(raw), 0)


@pytest.mark.parametrize("bad", BAD_NAMES)
@pytest.mark.parametrize("side", ["name", "blob"])
def test_files_in_a_manifest_cannot_lead_out_of_the_root(side: str, bad: str) -> None:
    name, blob = (bad, "7-40.0123abcd-CURRENT") if side == "name" else ("CURRENT", bad)
    for given_blob in (blob, f"7-40.0123abcd-{bad}") if side == "blob" and "/" in bad else (blob,):
        with pytest.raises(CorruptionError, match="cannot be"):
            decode_manifest(
                encode_manifest(
                    Manifest("hits-0", 3, 2, 7, 40, {name: (given_blob, 16, "ab" * 16)})
                )
            )


PIPELINE = b"""pipeline: visits
streams:
  visits:
    source: {files: {path: "/tmp/in", format: jsonl}}
    timestamp: time
    watermark: {max_delay: 10s}
computations:
  by_page:
    input: {visits: {key: page}}
    window: {tumbling: 1m}
    aggregate: {visits: count, users: {count_distinct: user}}
    where: "user != 'x' and n + 1 > 2"
    output: page_minutes
sinks:
  page_minutes: {files: {path: "/tmp/out"}}
"""


@fuzz
@given(st.data())
def test_a_damaged_pipeline_file_loads_or_says_what_is_wrong(
    tmp_path: Path, data: st.DataObject
) -> None:
    check_pipeline(tmp_path, data.draw(damaged(PIPELINE)))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[" * 20_000,
        b"a: " * 300,
        b"pipeline: !!python/object/apply:os.system ['true']",
        b"a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]",
        b"&a [*a]",
        b"\xff\xfe",
        b"\x00",
        b"pipeline: ../../x\n",
        b"pipeline: x\npipeline: y\n",
        b"? {a: b}\n: c\n",
        b"pipeline: " + b"9" * 5_000,
    ],
)
def test_hostile_pipeline_files_are_refused(tmp_path: Path, text: bytes) -> None:
    assert not check_pipeline(tmp_path, text)


@pytest.mark.parametrize("bad", ["../x", "a/b", ".", "a b", "x" * 65, "a.b"])
@pytest.mark.parametrize("name", ["visits", "by_page", "page_minutes"])
def test_names_of_a_pipeline_cannot_be_paths(tmp_path: Path, name: str, bad: str) -> None:
    assert not check_pipeline(tmp_path, PIPELINE.replace(name.encode(), f'"{bad}"'.encode()))


def check_pipeline(folder: Path, text: bytes) -> bool:
    file = folder / "pipeline.yaml"
    file.write_bytes(text)
    try:
        load_pipeline(str(file), {})
    except PipelineError as error:
        if "pipeline.yaml" not in str(error):
            raise
        return False
    return True
