"""Rights of files: private, or for one group to read; and what is refused because others may write
it."""

from __future__ import annotations

import grp
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.adapters import rights
from millwheel.adapters.rights import (
    close_to_others,
    group_of,
    keep_private,
    lock_file,
    refuse_writable,
    umask_of_results,
    under_users_umask,
    users_umask,
)
from millwheel.adapters.spaces.files import PosixFiles, ResultFiles
from millwheel.errors import SetupError
from tests.strangers import STRANGER, needs_a_stranger, said_by_a_stranger


@pytest.fixture(autouse=True)
def usual_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(rights.UMASK_VARIABLE, raising=False)
    monkeypatch.setattr(rights.os, "environ", dict(os.environ))
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_process_keeps_what_it_writes_to_its_user_and_remembers_what_the_user_wants(
    tmp_path: Path,
) -> None:
    keep_private()
    keep_private()  # a child, which inherits both
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    assert (mode(tmp_path / "file"), mode(tmp_path / "folder"), users_umask()) == (
        0o600,
        0o700,
        0o022,
    )


def test_beside_a_folder_that_a_group_shares_its_group_may_read(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2750)
    keep_private(str(shared))
    (shared / "file").touch()
    assert mode(shared / "file") == 0o640


def test_results_have_the_permissions_of_the_users_umask(tmp_path: Path) -> None:
    keep_private()
    with under_users_umask():
        (tmp_path / "results").mkdir()
    results = ResultFiles()
    results.make_dir(f"{tmp_path}/results/day")
    results.close(results.create(f"{tmp_path}/results/day/part"))
    assert [mode(tmp_path / name) for name in ("results", "results/day", "results/day/part")] == [
        0o755,
        0o755,
        0o644,
    ]
    assert mode(tmp_path) == 0o700
    results.close(results.create(f"{tmp_path}/part"))
    assert mode(tmp_path / "part") == 0o600, "no more for others than the folder gives them"


def test_without_a_run_files_are_created_as_ever(tmp_path: Path) -> None:
    assert umask_of_results(f"{tmp_path}/part") is None
    files = PosixFiles()
    files.close(files.create(f"{tmp_path}/part"))
    assert mode(tmp_path / "part") == 0o640


def test_blocks_of_several_threads_leave_the_private_umask_behind() -> None:
    keep_private()
    entered, leave = threading.Event(), threading.Event()

    def first() -> None:
        with under_users_umask():
            entered.set()
            leave.wait(5)

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(5)
    with under_users_umask():
        leave.set()
        thread.join()
    assert os.umask(0o077) == 0o077


def test_a_root_is_closed_when_it_is_created_and_when_an_older_one_is_taken(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    old.chmod(0o777)
    assert (close_to_others(tmp_path / "a" / "new"), close_to_others(old)) == ("", "")
    assert (mode(tmp_path / "a" / "new"), mode(old), mode(tmp_path / "a")) == (0o700, 0o700, 0o755)


def test_a_group_may_read_a_root_and_what_is_created_in_it(tmp_path: Path) -> None:
    name = grp.getgrgid(os.getgid()).gr_name
    close_to_others(tmp_path / "root", name)
    assert (mode(tmp_path / "root"), group_of(tmp_path / "root")) == (0o2750, os.getgid())
    close_to_others(tmp_path / "root")
    assert group_of(tmp_path / "root") is None


def test_an_unknown_group_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="--group nonesuch: this machine has no such group"):
        close_to_others(tmp_path / "root", "nonesuch")


@needs_a_stranger()
def test_a_root_of_another_user_that_others_may_write_is_warned_of_and_shared_by_nobody_else(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)
    assert "belongs to another user" in close_to_others(folder)
    with pytest.raises(SetupError, match="--group root"):
        close_to_others(folder, "root")


@pytest.mark.parametrize("bits", [0o620, 0o602, 0o666, 0o777])
@pytest.mark.parametrize("folder", [False, True])
def test_what_others_may_write_is_refused_with_the_remedy(
    tmp_path: Path, bits: int, folder: bool
) -> None:
    path = tmp_path / "thing"
    path.mkdir() if folder else path.touch()
    path.chmod(bits)
    with pytest.raises(SetupError, match=f"chmod go-w {path}"):
        refuse_writable(path)


def test_what_others_may_only_read_or_only_add_to_is_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)  # as Kubernetes mounts a secret
    (tmp_path / "file").touch(0o444)
    refuse_writable(tmp_path)
    refuse_writable(tmp_path / "file")


@needs_a_stranger()
def test_what_another_user_owns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o600)
    os.chown(tmp_path / "file", STRANGER, STRANGER)
    with pytest.raises(SetupError, match="belongs to another user"):
        refuse_writable(tmp_path / "file")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="open-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@needs_a_stranger()
def test_who_shares_a_folder_is_believed_by_the_members_of_its_group_alone(tmp_path: Path) -> None:
    shared = tmp_path / "access"
    shared.mkdir()
    (shared / "token").touch(0o640)
    for path in (shared, shared / "token"):
        os.chown(path, STRANGER, os.getgid())
    shared.chmod(0o2750)
    refuse_writable(shared)
    refuse_writable(shared / "token")
    os.chown(shared, STRANGER, STRANGER)
    shared.chmod(0o2750)
    for path in (shared, shared / "token"):
        with pytest.raises(SetupError, match="belongs to another user"):
            refuse_writable(path)


LOCKS = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_SH); print('locked')"


@needs_a_stranger()
@pytest.mark.parametrize("older", [False, True])
def test_nobody_else_can_lock_a_lock_file(open_folder: Path, older: bool) -> None:
    path = open_folder / "lock"
    if older:
        path.touch(0o644)
    with lock_file(path):
        assert "PermissionError" in said_by_a_stranger(LOCKS, str(path))


def test_a_lock_file_is_never_a_link_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        lock_file(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()
