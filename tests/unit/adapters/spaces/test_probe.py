from __future__ import annotations

import errno
from pathlib import Path

import pytest

from millwheel.adapters.spaces.files import PosixFiles
from millwheel.adapters.spaces.probe import probe, probe_objects
from millwheel.errors import SetupError
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.fakes.buckets import BucketServer, Fault
from tests.fakes.faulty_files import FaultyFiles, fail_when


class Clobbering(MemoryDisk):
    """Accepts a second create of a name, as some S3 mounts do."""

    def link(self, source: str, target: str) -> None:
        if self.exists(target):
            self.unlink(target)
        super().link(source, target)


class Forgiving(MemoryDisk):
    """Says yes to a second create of a name and does nothing."""

    def link(self, source: str, target: str) -> None:
        if not self.exists(target):
            super().link(source, target)


def test_a_good_root_passes_and_is_left_clean(tmp_path: Path) -> None:
    root = tmp_path / "new" / "root"
    probe(str(root), need_bytes=1)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("disk", [Clobbering(), Forgiving()])
def test_a_root_that_lets_a_name_be_taken_twice_is_refused(disk: MemoryDisk) -> None:
    with pytest.raises(SetupError, match="lets a second process take a name"):
        probe("/root", disk)
    assert disk.list_dir("/root") == []


def test_a_root_without_hard_links_is_refused() -> None:
    files = FaultyFiles(MemoryDisk(), before=fail_when("link", errno.EPERM))
    with pytest.raises(SetupError, match="no hard links"):
        probe("/root", files)


def test_a_root_without_room_is_refused() -> None:
    with pytest.raises(SetupError, match=r"has 3 MB left and needs at least 256"):
        probe("/root", MemoryDisk(room=3 << 20))


@pytest.mark.parametrize(
    ("call", "number", "words"),
    [
        ("make_dir", errno.EROFS, "writable"),
        ("sync", errno.EIO, "Check the disk"),
        ("sync_dir", errno.EIO, "Check"),
    ],
)
def test_a_root_that_cannot_be_written_or_synced_is_refused(
    call: str, number: int, words: str
) -> None:
    with pytest.raises(SetupError, match=f"cannot hold a pipeline.*{words}"):
        probe("/root", FaultyFiles(MemoryDisk(), before=fail_when(call, number)))


def test_a_file_is_no_root(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot hold a pipeline"):
        probe(str(tmp_path / "file"), PosixFiles())


# --- object stores


def test_an_object_store_that_heeds_conditions_passes_and_is_left_empty(
    bucket_server: BucketServer,
) -> None:
    bucket_server.fail()
    space = bucket_server.space()
    probe_objects(space)
    assert space.names(space.root) == []


_CONDITIONS = {
    ("s3", "if_none_match"): "If-None-Match",
    ("s3", "if_match"): "If-Match",
    ("gs", "if_none_match"): "x-goog-if-generation-match: 0",
    ("gs", "if_match"): "x-goog-if-generation-match",
}


@pytest.mark.parametrize("condition", ["if_none_match", "if_match"])
def test_a_store_that_takes_a_condition_and_ignores_it_is_refused(
    bucket_server: BucketServer, condition: str
) -> None:
    bucket_server.fail(Fault("PUT", "", f"ignore_{condition}", 1000))
    space = bucket_server.space()
    words = (
        f"ignores the condition {_CONDITIONS[bucket_server.scheme, condition]} of a write, .* could"
        " come back"
    )
    with pytest.raises(SetupError, match=words):
        probe_objects(space)
    bucket_server.fail()
    assert space.names(space.root) == []


def test_a_store_that_cannot_be_written_is_refused(bucket_server: BucketServer) -> None:
    bucket_server.fail(Fault("PUT", "", "deny", 1000))
    with pytest.raises(SetupError, match="give credentials"):
        probe_objects(bucket_server.space())
    bucket_server.fail()
