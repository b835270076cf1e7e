"""Files as bytes: compressed, damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from millwheel.errors import SetupError
from tests.fakes.reading import open_file, read_on

LINES = b"".join(b'{"n":%d}\n' % n for n in range(60_000))


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize(
    ("name", "compress"), [("a.jsonl.gz", gzip.compress), ("a.jsonl.zst", zstd)]
)
def test_a_compressed_file_reads_as_what_it_holds(
    tmp_path: Path, name: str, compress: object
) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / name
    plain.write_bytes(LINES)
    packed.write_bytes(compress(LINES))  # type: ignore[operator]
    whole = read_on(open_file(packed), size=7_000)
    assert whole.records == read_on(open_file(plain)).records
    assert whole.finished
    middle = whole.records[30_000][0]
    reader = open_file(packed)
    assert read_on(reader, middle, 9_000).records == whole.records[30_001:]
    assert reader.read(0, 3).values == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"n":1}\n{"n"') + gzip.compress(b":2}\n"))
    assert read_on(open_file(path)).values == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("size", [10, 1_000, 100_000])
def test_a_compressed_file_that_was_cut_off_gives_what_is_whole_and_one_reject(
    tmp_path: Path, size: int
) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(LINES)[:-3000])
    found = read_on(open_file(path), size=size)
    assert found.finished
    assert found.records
    assert found.records == read_on(open_file(path)).records
    (reject,) = found.rejects
    assert "cut off" in reject.reason
    assert reject.position == found.next_position > found.records[-1][0]


@pytest.mark.parametrize(
    ("name", "compress"), [("a.jsonl.gz", gzip.compress), ("a.jsonl.zst", zstd)]
)
@pytest.mark.parametrize("place", [0, 3, 20_000])
def test_a_compressed_file_with_wrong_bytes_is_a_reject_and_no_crash(
    tmp_path: Path, name: str, compress: object, place: int
) -> None:
    packed = bytearray(compress(LINES))  # type: ignore[operator]
    packed[place : place + 40] = bytes(40)
    path = tmp_path / name
    path.write_bytes(packed)
    found = read_on(open_file(path), size=5_000)
    assert found.finished
    assert "compressed" in found.rejects[-1].reason


def test_a_bounded_file_that_shrank_is_a_setup_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n")
    with pytest.raises(SetupError, match="has 3 bytes, but 9 were read before"):
        open_file(path).read(9, 10)


def test_a_missing_file_is_a_setup_error_unless_it_is_followed(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="No such file"):
        open_file(tmp_path / "a.jsonl")
    reader = open_file(tmp_path / "b.jsonl", follow=True)
    assert read_on(reader).next_position == 0
    (tmp_path / "b.jsonl").write_bytes(b"{}\n")
    assert read_on(reader).records == [(3, {})]
