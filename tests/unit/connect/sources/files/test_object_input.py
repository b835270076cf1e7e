"""Ranges of one version of an object; test_object_reader.py reads formats through them."""

from __future__ import annotations

import os

import pytest
from obstore.store import MemoryStore

from millwheel.adapters.spaces.object_address import ObjectAddress
from millwheel.adapters.spaces.object_store import ObjectStore
from millwheel.connect.sources.files import object_input
from millwheel.connect.sources.files.object_input import ObjectBytes, ObjectFile, ObjectInput
from millwheel.errors import SetupError

DATA = os.urandom(2_500)


@pytest.fixture
def content(monkeypatch: pytest.MonkeyPatch) -> ObjectBytes:
    monkeypatch.setattr(object_input, "BLOCK_BYTES", 1_000)
    store = ObjectStore(ObjectAddress("s3", "bucket", ""), {})
    store._client = MemoryStore()
    store.stage("a", DATA)
    found = store.head("a")
    assert found is not None
    return ObjectBytes(store, "a", found.size, found.version.tag)


def test_any_range_is_what_is_there(content: ObjectBytes) -> None:
    for start, size in ((0, 10), (990, 20), (0, 2_500), (2_400, 500), (2_500, 1), (500, 1_700)):
        assert (
            content.sequential(start, size)
            == content.range(start, size)
            == DATA[start : start + size]
        )
    content.close()


def test_a_file_of_an_object_can_be_sought(content: ObjectBytes) -> None:
    file = ObjectFile(content)
    assert file.seek(-8, os.SEEK_END) == file.tell() == 2_492
    assert file.read() == DATA[-8:]
    assert file.read(4) == b""
    file.seek(10)
    file.seek(5, os.SEEK_CUR)
    assert file.read(5) == DATA[15:20]


def test_a_position_behind_the_end_is_of_another_object(content: ObjectBytes) -> None:
    with pytest.raises(SetupError, match="has 2500 bytes, but 2501 were read"):
        ObjectInput("s3://bucket/a", content).locate(2_501)
