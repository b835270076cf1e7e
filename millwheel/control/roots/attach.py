"""How tools find a running pipeline: by its root, and from there by its ZooKeeper."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from millwheel.adapters.coordination import open_coordination
from millwheel.adapters.ports import Coordination
from millwheel.adapters.spaces.root_address import in_bucket
from millwheel.control.roots.root import DEFAULT_FOLDER, LOCK_FILE, RunInfo, read_run, root_path
from millwheel.errors import SetupError, UnavailableError

_ANSWER_S = 10.0  # for ZooKeeper to name the leader
_LEADER_S = 5.0  # for a leader to be elected


def find_root(address: str) -> Path:
    """The root to use: ``address``, or the only one below ``.millwheel`` when ``address`` is "". Of
    several there, it is the only one with a run going on now.

    Raises SetupError when there is none, or more than one to choose from.
    """
    if address:
        root = root_path(address)
        if in_bucket(address) and not root.exists():
            raise SetupError(
                f"{address} has no driver here: use the machine of its driver, in the folder "
                "where `millwheel run` was started"
            )
        if root.is_file():
            raise SetupError(
                f"{address} is a file, not the root of a run: give the folder that the run was"
                f" started on, by default {DEFAULT_FOLDER}/ and the name of its pipeline"
            )
        return root
    roots = [lock.parent for lock in sorted(Path(DEFAULT_FOLDER).glob(f"*/{LOCK_FILE}"))]
    chosen = roots if len(roots) == 1 else [root for root in roots if is_driven(root)]
    if len(chosen) == 1:
        return chosen[0].absolute()
    if not roots:
        raise SetupError(
            f"There is no run below {DEFAULT_FOLDER} in this folder: go to the folder where"
            " `millwheel run` was started, or name the --root of that run"
        )
    words = (
        f"{len(chosen)} runs are going on"
        if chosen
        else f"{len(roots)} runs were here, and none is going on"
    )
    raise SetupError(
        f"Name the run, because {words}: one of {', '.join(map(str, chosen or roots))}"
    )


def is_driven(root: Path) -> bool:
    """Whether a driver holds the root now."""
    try:
        with open(root / LOCK_FILE) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    # we are of its group, which reads the root; the lock is for its user alone
    except PermissionError:
        run = read_run(root)
        return run is not None and is_alive(run.driver_pid)
    return False


def is_alive(pid: int) -> bool:
    """Whether this machine has a process of that number, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def attach(root: Path) -> RunInfo:
    """The address of the run on a root. Raises SetupError when no run is going on."""
    run = read_run(root)
    if run is None:
        raise SetupError(f"{root} is not the root of a run: give the --root of its `millwheel run`")
    if not is_driven(root):
        raise SetupError(
            f"No run is going on on the root {root}. The same `millwheel run` command continues it"
        )
    return run


@contextmanager
def connected(run: RunInfo) -> Iterator[Coordination]:
    """A session with the run's ZooKeeper. Raises SetupError when it does not answer."""
    coordination = open_coordination(run.zookeeper, run.pipeline, security=run.security)
    try:
        yield coordination
    finally:
        coordination.close()


class LiveMembers:
    """The members of a role, followed while the session lives."""

    def __init__(self, coordination: Coordination, role: str) -> None:
        self._role = role
        self._answered = threading.Event()
        self._any = threading.Event()
        self._members: Mapping[str, bytes] = {}
        coordination.watch_members(role, self._changed)

    def now(self) -> Mapping[str, bytes]:
        """Names and data. Raises UnavailableError when ZooKeeper does not answer."""
        if not self._answered.wait(_ANSWER_S):
            raise UnavailableError(
                f"ZooKeeper did not list the {self._role} within {_ANSWER_S:.0f} s"
            )
        return self._members

    def some(self, within_s: float = _LEADER_S) -> Mapping[str, bytes]:
        """As :meth:`now`, once the role has members; {} if it gets none in time. There is no leader
        for a moment while a run starts, and after a leader has died."""
        self.now()
        self._any.wait(within_s)
        return self._members

    def _changed(self, members: Mapping[str, bytes]) -> None:
        self._members = dict(members)
        self._answered.set()
        (self._any.set if members else self._any.clear)()
