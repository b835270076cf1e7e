from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.ports import Manifest
from millwheel.adapters.snapshots.manifest import (
    Rank,
    blob_prefix,
    blob_rank,
    decode_manifest,
    encode_manifest,
    manifest_name,
    manifest_number,
    rank,
)
from millwheel.errors import CorruptionError

_numbers = st.integers(0, 2**53)
_names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
_ranks = st.builds(Rank, _numbers, _numbers)
_blobs = st.builds(lambda of, name: blob_prefix(of) + name, _ranks, _names)
_manifests = st.builds(
    Manifest,
    shard=_names,
    number=_numbers,
    parent=_numbers,
    token=_numbers,
    last_commit=_numbers,
    files=st.dictionaries(
        _names, st.tuples(_blobs, _numbers, st.text("0123456789abcdef", min_size=32, max_size=32))
    ),
)


@given(_manifests)
def test_a_manifest_comes_back_as_it_was(manifest: Manifest) -> None:
    assert decode_manifest(encode_manifest(manifest)) == manifest


@given(_manifests, st.data())
def test_no_byte_of_a_manifest_can_change_unseen(manifest: Manifest, data: st.DataObject) -> None:
    encoded = encode_manifest(manifest)
    index = data.draw(st.integers(0, len(encoded) - 2))
    bit = 1 << data.draw(st.integers(0, 7))
    changed = encoded[:index] + bytes([encoded[index] ^ bit]) + encoded[index + 1 :]
    with suppress(CorruptionError):
        assert decode_manifest(changed) == manifest


@given(st.binary())
def test_bytes_that_are_no_manifest_are_told_as_corruption(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_manifest(data)


@pytest.mark.parametrize(
    ("name", "blob"),
    [("../../etc/passwd", "1-1.00000000-x"), ("x", "../../1-1.00000000-x"), ("x", "x")],
)
def test_a_manifest_that_names_files_elsewhere_is_refused(name: str, blob: str) -> None:
    with pytest.raises(CorruptionError, match="cannot be"):
        decode_manifest(encode_manifest(Manifest("s", 1, 0, 1, 1, {name: (blob, 1, "")})))


@given(_ranks, _names)
def test_a_blob_tells_what_it_was_made_for(of: Rank, name: str) -> None:
    assert blob_rank(blob_prefix(of) + name) == of


def test_two_attempts_never_share_a_name() -> None:
    assert blob_prefix(Rank(1, 1)) != blob_prefix(Rank(1, 1))


@given(st.integers(1, 10**12))
def test_a_manifest_is_found_by_its_number(number: int) -> None:
    assert manifest_number(manifest_name(number)) == number
    assert blob_rank(manifest_name(number)) is None


@pytest.mark.parametrize(
    "name", ["manifest-1.json", "manifest-0000000001.json.x", ".tmp-manifest-0000000001.json"]
)
def test_other_names_are_no_manifests(name: str) -> None:
    assert manifest_number(name) == 0


def test_a_token_outranks_any_commit() -> None:
    old, new = Manifest("s", 1, 0, 1, 99, {}), Manifest("s", 2, 1, 2, 3, {})
    assert rank(old) < rank(new)
