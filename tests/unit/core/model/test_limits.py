from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.formats.codec import decode_batch, deliveries, encode_batch
from millwheel.core.model.keys import fitting_key
from millwheel.core.model.limits import size_bytes, size_text
from millwheel.core.model.records import Batch
from millwheel.errors import RecordError


@pytest.mark.parametrize(
    ("text", "size"), [("64kB", 64_000), ("1MiB", 1 << 20), ("500B", 500), ("2 GB", 2 * 10**9)]
)
def test_sizes_have_a_number_and_a_unit(text: str, size: int) -> None:
    assert size_bytes(text) == size
    assert size_bytes(size_text(size)) == size


@pytest.mark.parametrize("text", ["", "64", "1.5MB", "-1kB", "1mb", "kB"])
def test_what_is_no_size_is_told_with_what_is_one(text: str) -> None:
    with pytest.raises(ValueError, match="16MiB"):
        size_bytes(text)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=40), st.booleans())
def test_a_large_batch_is_cut_into_deliveries_with_the_same_records_in_order(
    sizes: list[int], plain: bool
) -> None:
    values = ["x" * size for size in sizes]
    stored = values if plain else [msgspec.Raw(msgspec.msgpack.encode(value)) for value in values]
    count = len(sizes)
    whole = Batch("s", list(range(1, count + 1)), [0] * count, ["k"] * count, list(stored), None, 7)
    whole.size = len(encode_batch(whole))
    pieces = [decode_batch(encode_batch(piece)) for piece in deliveries(whole, 500)]
    decoded = [msgspec.msgpack.decode(raw) for piece in pieces for raw in piece.rows().values]
    assert decoded == values
    assert [seq for piece in pieces for seq in piece.rows().seqs] == whole.seqs
    assert all(len(piece) == 1 or sum(map(len, piece.rows().values)) <= 500 for piece in pieces)


def test_a_batch_weighs_its_records_or_its_kilobytes() -> None:
    batch = Batch("s", [1, 2], [0, 0], ["a", "b"], ["x", "y"])
    assert batch.weight == 2
    batch.size = 1 << 20
    assert batch.weight == 1024
    assert batch.pick([1]).weight == batch.tail(1).weight == 512


def test_keys_have_a_limit_in_encoded_bytes() -> None:
    assert fitting_key("ä" * 30, 64) == "ä" * 30
    assert fitting_key(["a", 1], 64) == ("a", 1)
    for bad in ("ä" * 40, b"x" * 80, ("a" * 40, "b" * 40)):
        with pytest.raises(RecordError, match=r"over limits\.key \(64B\)"):
            fitting_key(bad, 64)
