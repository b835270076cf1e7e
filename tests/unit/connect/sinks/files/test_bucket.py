"""Objects that are replaced only by newer ones; test_layout.py has crashes and zombies."""

from __future__ import annotations

import pytest
import xxhash
from obstore.store import MemoryStore

from millwheel.adapters.spaces.object_address import ObjectAddress
from millwheel.adapters.spaces.object_store import ObjectStore, ObjectVersion
from millwheel.connect.sinks.base import LostError
from millwheel.connect.sinks.files.bucket import BucketDestination
from millwheel.connect.sinks.files.layout import Piece
from millwheel.errors import CorruptionError, UnavailableError

DATA = b"{}\n"
SMALL = Piece(
    "part-x-00000000.jsonl", "part-x-00000000-1-1-0.tmp", 1, 3, xxhash.xxh3_64_intdigest(DATA), DATA
)
LARGE = Piece(
    "part-x-00000000.jsonl", "part-x-00000000-1-1-0.tmp", 1, 3, xxhash.xxh3_64_intdigest(DATA)
)


class Store(ObjectStore):
    def __init__(self) -> None:
        super().__init__(ObjectAddress("s3", "bucket", ""), {})
        self._client = MemoryStore()


def test_a_write_whose_answer_is_lost_counts_once() -> None:
    class Losing(Store):
        def write(
            self, key: str, data: bytes, former: ObjectVersion | None, number: int = -1
        ) -> ObjectVersion | None:
            super().write(key, data, former, number)
            raise UnavailableError("no answer")

    store = Losing()
    destination = BucketDestination(store, "")
    with pytest.raises(UnavailableError):
        destination.publish(SMALL, 3)
    destination.publish(SMALL, 3)
    assert [(found.key, store.head(found.key).number) for found in store.list("")] == [
        (SMALL.final, 3)
    ]  # type: ignore[union-attr]


def test_a_hidden_object_that_is_gone_before_it_was_published_is_missed() -> None:
    with pytest.raises(LostError):
        BucketDestination(Store(), "").publish(LARGE, 0)


def test_a_hidden_object_that_was_damaged_is_not_shown() -> None:
    store = Store()
    BucketDestination(store, "").hide([(LARGE.temp, b"xx\n")])
    with pytest.raises(CorruptionError, match="the store damaged it"):
        BucketDestination(store, "").publish(LARGE, 0)
