"""What people have as compressed files: whole, several in one, padded, cut off, damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from millwheel.connect.sources.files.compression import CUT_OFF
from millwheel.connect.sources.files.inputs import open_input

TEXT = b"".join(b'{"n": %d}\n' % (number * 7919 % 1_000_003) for number in range(40_000))
GZ = gzip.compress(TEXT)
ZST: bytes = pa.compress(TEXT, "zstd", asbytes=True)


def read(path: Path, step: int) -> tuple[bytes, str]:
    opened, found = open_input(str(path)), b""
    while data := opened.read_at(len(found), step):
        found += data
    damage = opened.damage()
    opened.close()
    return found, damage


@pytest.mark.parametrize(
    ("name", "data", "text", "damage"),
    [
        ("whole.gz", GZ, TEXT, ""),
        (
            "members.gz",
            gzip.compress(TEXT[:70_000]) + gzip.compress(b"") + gzip.compress(TEXT[70_000:]),
            TEXT,
            "",
        ),
        ("padded.gz", GZ + bytes(70_001), TEXT, ""),
        ("padded_between.gz", GZ + bytes(512) + GZ, TEXT + TEXT, ""),
        ("with_more.gz", GZ + b"made by x\n", TEXT, "bytes that are not gzip"),
        ("no_checksum.gz", GZ[:-4], TEXT, CUT_OFF),
        ("other_checksum.gz", GZ[:-8] + b"12345678", TEXT, "damaged"),
        ("empty.gz", b"", b"", ""),
        ("text.gz", b"plain\n", b"", "not compressed by gzip"),
        ("whole.zst", ZST, TEXT, ""),
        ("frames.zst", ZST + ZST, TEXT + TEXT, ""),
        ("with_more.zst", ZST + b"made by x\n", TEXT, "damaged"),
        ("empty.zst", b"", b"", ""),
    ],
)
def test_everything_in_front_of_a_damage_is_read_and_the_damage_is_told(
    tmp_path: Path, name: str, data: bytes, text: bytes, damage: str
) -> None:
    (tmp_path / name).write_bytes(data)
    found, told = read(tmp_path / name, 1 << 20)
    assert found == text
    assert damage in told
    assert bool(damage) == bool(told)


@pytest.mark.parametrize(("name", "data"), [("a.gz", GZ), ("a.zst", ZST)])
def test_where_a_file_is_cut_off_does_not_depend_on_the_size_of_reads(
    tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data[: len(data) * 9 // 10])
    found = {read(tmp_path / name, step) for step in (1 << 20, 100_003, 4_096)}
    [(text, told)] = found
    assert TEXT.startswith(text)
    assert len(text) > len(TEXT) // 2
    assert told == CUT_OFF
