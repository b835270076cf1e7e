"""The statuses that answer each of these are in ``test_endpoint.py``."""

from __future__ import annotations

import gzip
import zlib

import pyarrow as pa
import pytest

from millwheel.connect.connectors.http.bodies import BodyError
from millwheel.connect.connectors.http.compression import EncodingError, TooLargeError, unpacked

TEXT = b'{"n": 1}\n' * 100
PACKED = {
    "gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "zstd": bytes(pa.compress(TEXT, "zstd", asbytes=True)),
}


@pytest.mark.parametrize("encoding", PACKED)
def test_a_body_may_be_as_large_as_the_limit_and_no_byte_larger(encoding: str) -> None:
    assert unpacked(PACKED[encoding], encoding, len(TEXT)) == TEXT
    with pytest.raises(TooLargeError):
        unpacked(PACKED[encoding], encoding, len(TEXT) - 1)


@pytest.mark.parametrize("encoding", ["", "identity", " Identity , "])
def test_a_body_without_an_encoding_stays_as_it_is(encoding: str) -> None:
    assert unpacked(PACKED["gzip"], encoding, 10_000) == PACKED["gzip"]


@pytest.mark.parametrize("encoding", ["br", "gzip, deflate", "x-"])
def test_another_encoding_is_refused_with_those_that_are_taken(encoding: str) -> None:
    with pytest.raises(
        EncodingError, match=f"Content-Encoding: {encoding} is not taken; send gzip, deflate, zstd"
    ):
        unpacked(TEXT, encoding, 10_000)


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("cut", [False, True])
def test_a_body_that_is_plain_or_cut_off_is_not_what_it_says(encoding: str, cut: bool) -> None:
    with pytest.raises(
        BodyError, match=f"the body is not {encoding}, as its Content-Encoding says: "
    ):
        unpacked(PACKED[encoding][:-5] if cut else TEXT, encoding, 10_000)
