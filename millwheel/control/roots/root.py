"""The root of a run: its owner, its one driver, and the facts that later runs find there."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
from xxhash import xxh3_64_hexdigest

from millwheel.adapters.rights import close_to_others, lock_file
from millwheel.adapters.spaces.probe import probe
from millwheel.adapters.spaces.root_address import in_bucket, parse_root
from millwheel.core.model.damage import DAMAGE
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import SetupError

DEFAULT_FOLDER = ".millwheel"
"""The folder of default roots, below the current folder."""
LOCK_FILE = "driver.lock"
IDENTITY = "identity.json"
_RUN = "run.json"
COMPLETED = "COMPLETED"
ACCESS = "access"
"""The folder in a root with the token of its runs, unless they have a security folder."""
_EMPTYING = f".{IDENTITY}.emptying"
"""Stands as long as a root is emptied."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a root: its pipeline, and the random id of this instance of the root. Written
    once, never changed."""

    pipeline: str
    instance: str

    def __str__(self) -> str:
        return f"{self.pipeline}-{self.instance}"

    def must_be(self, pipeline: str, root: str | Path) -> None:
        """Raise SetupError when the root belongs to another pipeline."""
        if self.pipeline != pipeline:
            raise SetupError(
                f"The root {root} belongs to the pipeline {self.pipeline!r}, not to {pipeline!r}. "
                "Give another --root, or run the pipeline it belongs to."
            )


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The addresses of the run on a root, for tools. ``seconds`` is the working time of earlier
    runs, ``security`` the folder with its token, and its certificates if it has some ("": it is
    open to everybody on its machine)."""

    pipeline: str
    instance: str
    zookeeper: str
    driver_pid: int
    seconds: float = 0.0
    security: str = ""


class Root:
    """A directory that this driver holds, from :meth:`open` to :meth:`close`. ``address`` is its
    name for other processes, ``path`` the folder of this machine for its data."""

    def __init__(self, path: Path, identity: Identity, lock: IO[str]) -> None:
        self.path = path
        self.address = str(path)
        self.identity = identity
        self._lock = lock

    @classmethod
    def open(
        cls, address: str, pipeline: str, group: str = "", announce: Callable[[str], object] = print
    ) -> Root:
        """Take a root, creating it when there is none. Nobody else can enter it, but for ``group``
        ("": none), which may read it. ``announce`` gets a sentence when others can write it all the
        same.

        Raises SetupError when another driver holds it, when it belongs to another pipeline or to
        something else, or when it cannot be written.
        """
        path = root_path(address)
        try:
            if warning := close_to_others(path, group):
                announce(f"Warning: {warning}. Files in a root are executed as you")
            _refuse_foreign(path)
            lock = take_lock(path)
            try:
                if (path / _EMPTYING).exists():
                    _empty(path)
                return cls(path, _identity(path, pipeline), lock)
            except BaseException:
                lock.close()
                raise
        except OSError as error:
            raise SetupError(
                f"The root {path} cannot be used: {error}. Choose a folder that can be written."
            ) from error

    def close(self) -> None:
        """Release the root for other drivers."""
        self._lock.close()

    def empty(self) -> None:
        """Forget everything: from here on it is a new root."""
        _empty(self.path)
        self.identity = _identity(self.path, self.identity.pipeline)

    def check(self) -> None:
        """Raise SetupError when this driver no longer holds the root."""

    def probe(self, need_bytes: int) -> None:
        """Raise SetupError unless the root gives the guarantees that a run relies on and has enough
        free space."""
        probe(str(self.path), need_bytes=need_bytes)

    def share(self) -> None:
        """Share the shipped files and the lists of inputs with other processes. In a folder they
        are visible already."""

    @property
    def logs(self) -> Path:
        """The folder in which the processes of a run write their logs."""
        return self._folder("logs")

    def logs_of_workers(self, far: bool) -> str:
        """The folder for logs of workers; "": each worker keeps its logs on its own machine."""
        return str(self.logs)

    @property
    def scratch(self) -> Path:
        """Local stores of workers on this machine; nothing in it outlives a run."""
        return self._folder("scratch")

    def clear_scratch(self) -> None:
        """Delete the scratch files of an earlier run's workers; none of these workers lives while
        we hold the root."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def used(self) -> bool:
        """Whether workers have ever written a journal here."""
        journal = self.path / "journal"
        return journal.is_dir() and any(entry.is_dir() for entry in journal.iterdir())

    @property
    def orders(self) -> str:
        """The location of the driver's orders to workers in executors (see
        ``launch/launchers/executor_orders.py``)."""
        return str(self.path / "stop")

    def check_reach(self, spec: PipelineSpec, far: bool) -> None:
        """Raise SetupError when the pipeline needs a folder that workers on other machines
        (``far``) do not have."""

    def read_run(self) -> RunInfo | None:
        """The information of the last driver about its run, or None."""
        return read_run(self.path)

    def write_run(self, info: RunInfo) -> None:
        """Write the addresses of the run, for tools."""
        write_atomically(self.path / _RUN, msgspec.json.encode(info))

    def completed(self) -> Mapping[str, Any] | None:
        """The summary of a run that has processed all of its bounded input, or None."""
        return read_completed(self.path)

    def complete(self, summary: Mapping[str, Any]) -> None:
        """Note that the input has been processed to its end."""
        write_atomically(
            self.path / COMPLETED, msgspec.json.format(msgspec.json.encode(summary), indent=2)
        )

    def _folder(self, name: str) -> Path:
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        return folder


def root_path(address: str) -> Path:
    """The folder of a root on this machine, absolute. ``address`` is a path, a ``file://`` URI or
    ``s3://bucket/prefix``.

    Raises SetupError for other schemes.
    """
    if in_bucket(address):
        root = parse_root(address).root
        return (
            Path(DEFAULT_FOLDER).absolute()
            / f"{root.rpartition('/')[2]}-{xxh3_64_hexdigest(root.encode())}"
        )
    scheme, separator, rest = address.partition("://")
    if not separator:
        return Path(address).expanduser().absolute()
    if scheme != "file" or not rest.startswith("/"):
        raise SetupError(
            f"The root {address} is not valid, because a root needs a store in which a name can be"
            " created only once: give a path or file:///path that all workers share,"
            " s3://bucket/prefix, az://container/prefix or gs://bucket/prefix"
        )
    return Path(rest)


def read_run(path: Path) -> RunInfo | None:
    """The addresses of the run on the root at ``path``; None when no run was ever started there."""
    try:
        return msgspec.json.decode((path / _RUN).read_bytes(), type=RunInfo)
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGE) as error:
        raise SetupError(f"{path / _RUN} cannot be read: {error}") from error


def read_completed(path: Path) -> Mapping[str, Any] | None:
    """The summary of the run on the root at ``path`` that has processed all of its input, or
    None."""
    return _read_json(path / COMPLETED)


def write_atomically(target: Path, data: bytes) -> None:
    """Replace a small file atomically: readers see the old bytes or the new ones, even after a
    crash."""
    staged = target.with_name(f".{target.name}.{os.getpid()}")
    with open(staged, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(staged, target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_foreign(path: Path) -> None:
    """Raise SetupError for a folder that holds anything but a root or the remains of an interrupted
    creation of one."""
    names = {entry.name for entry in path.iterdir()}
    strange = [name for name in names - {LOCK_FILE} if not name.startswith(f".{IDENTITY}.")]
    if strange and IDENTITY not in names:
        raise SetupError(
            f"The folder {path} is not empty and is not a root of a pipeline. Give an empty or a"
            " new folder with --root."
        )


def _empty(path: Path) -> None:
    """Remove everything from the folder of a root, which the caller has locked. The next driver
    that opens a root in which that was interrupted finishes it first: the rest looks like a state,
    and is not one."""
    (path / _EMPTYING).touch()
    sync_folder(path)
    for entry in os.scandir(path):
        if entry.name in (LOCK_FILE, _EMPTYING):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    sync_folder(path)
    (path / _EMPTYING).unlink()
    sync_folder(path)


def take_lock(path: Path) -> IO[str]:
    """Lock the folder of a root against other drivers of this machine. Raises SetupError when one
    holds the lock."""
    lock = lock_file(path / LOCK_FILE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = lock.read().strip()
        lock.close()
        who = f"process {holder}" if holder else "another process"
        raise SetupError(
            f"A run on the root {path} is going on already ({who}). Wait for it, stop it, or give"
            " another --root."
        ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def identity_of(folder: str) -> str:
    """The instance of the root whose shared files lie in ``folder``; "" if it has none."""
    try:
        return str(msgspec.json.decode((Path(folder) / IDENTITY).read_bytes(), type=Identity))
    except (OSError, *DAMAGE):
        return ""


def _identity(path: Path, pipeline: str) -> Identity:
    """The stored identity, created if there is none. Raises SetupError when it is that of another
    pipeline."""
    target = path / IDENTITY
    if not target.exists():
        staged = path / f".{IDENTITY}.{secrets.token_hex(4)}"
        with open(staged, "wb") as file:
            file.write(msgspec.json.encode(Identity(pipeline, secrets.token_hex(8))))
            file.flush()
            os.fsync(file.fileno())
        # another driver was quicker: its identity is stored, and is read below
        with suppress(FileExistsError):
            os.link(staged, target)
        os.unlink(staged)
        sync_folder(path)
    try:
        identity = msgspec.json.decode(target.read_bytes(), type=Identity)
    except DAMAGE as error:
        raise SetupError(
            f"{target} is damaged ({error}): the root cannot be trusted; use another one"
        ) from error
    identity.must_be(pipeline, path)
    return identity


def _read_json(path: Path) -> Mapping[str, Any] | None:
    try:
        content = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGE) as error:
        raise SetupError(f"{path} cannot be read: {error}") from error
    return content
