"""Workers in network namespaces of their own, so that each can be cut off from all others and reconnected.

    hub       the driver, ZooKeeper, master and injector, and the bridge that all workers are on
    w0, w1 …  one for each slot, with one end of a veth pair; the other end is on the bridge

None of them can reach the networks of the machine. Linux, root, and the command ``ip`` are needed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

from millwheel.errors import SetupError

HUB_ADDRESS = "10.213.0.1"
PREFIX = "MILLWHEEL_NAMESPACES"
"""The variable that tells a worker how its namespaces are called."""
MAX_WORKERS = 200  # addresses that there are in the network of the hub
_NAME = "mwchaos"
_BRIDGE = "millwheel"
_FOLDER = Path("/run/netns")
_NEWNET = 0x40000000  # Fixed: CLONE_NEWNET of Linux
_PATIENCE_S = 20.0  # for one command of ip(8)


def address_of(slot: int) -> str:
    """The address on which the worker of a slot serves."""
    return f"10.213.0.{10 + slot}"


def hub_of(prefix: str) -> str:
    """The namespace of the driver."""
    return f"{prefix}-hub"


def namespace_of(prefix: str, slot: int) -> str:
    """The namespace of a worker."""
    return f"{prefix}-w{slot}"


class Namespaces:
    """A context, in which the calling thread, and all that it starts, is in the hub.

    Raises SetupError, with the reason, when this machine has no such thing; then nothing of it is left.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self.prefix = f"{_NAME}-{os.getpid()}"
        self._home = -1

    def __enter__(self) -> Namespaces:
        self._check()
        for name in _left_behind():
            _run("ip", "netns", "del", name)
        try:
            self._make()
            self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            _enter(os.open(_FOLDER / hub_of(self.prefix), os.O_RDONLY))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._home >= 0:
            _enter(self._home)
            self._home = -1
        for name in _existing(self.prefix):
            _run("ip", "netns", "del", name)

    def cut(self, slot: int) -> None:
        """Drop everything to and from the worker of a slot from now on."""
        _run(*self._hub("link", "set", f"w{slot}", "nomaster"))

    def mend(self, slot: int) -> None:
        """Undo :meth:`cut`."""
        _run(*self._hub("link", "set", f"w{slot}", "master", _BRIDGE))

    def _check(self) -> None:
        if os.geteuid() != 0:
            raise SetupError("network namespaces need root")
        if shutil.which("ip") is None:
            raise SetupError("network namespaces need the command `ip` (package iproute2)")
        if self._workers > MAX_WORKERS:
            raise SetupError(f"there is room for {MAX_WORKERS} workers in namespaces")

    def _hub(self, *words: str) -> Sequence[str]:
        return "ip", "-n", hub_of(self.prefix), *words

    def _make(self) -> None:
        _run("ip", "netns", "add", hub_of(self.prefix))
        _run(*self._hub("link", "set", "lo", "up"))
        _run(*self._hub("link", "add", _BRIDGE, "type", "bridge"))
        _run(*self._hub("addr", "add", f"{HUB_ADDRESS}/24", "dev", _BRIDGE))
        _run(*self._hub("link", "set", _BRIDGE, "up"))
        for slot in range(self._workers):
            namespace, port = namespace_of(self.prefix, slot), f"w{slot}"
            _run("ip", "netns", "add", namespace)
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
            _run(*self._hub("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace))
            _run(*self._hub("link", "set", port, "master", _BRIDGE, "up"))
            _run("ip", "-n", namespace, "addr", "add", f"{address_of(slot)}/24", "dev", "eth0")
            _run("ip", "-n", namespace, "link", "set", "eth0", "up")


def _existing(prefix: str) -> list[str]:
    return sorted(path.name for path in _FOLDER.glob(f"{prefix}-*"))


def _left_behind() -> list[str]:
    """Namespaces of runs that were killed before they could remove them."""
    found = [(name, name.split("-")[1]) for name in _existing(_NAME)]
    return [name for name, pid in found if pid.isdecimal() and not psutil.pid_exists(int(pid))]


def _enter(namespace: int) -> None:
    """Go there with this thread (:func:`os.setns` is of Python 3.12), and close the descriptor."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace, _NEWNET) != 0:
            raise SetupError(f"a network namespace cannot be entered: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(namespace)


def _run(*command: str) -> None:
    # In a session of its own: Ctrl-C is for us, who then remove what was made.
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, start_new_session=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"`{' '.join(command)}` does not work here: {error}") from error
    if done.returncode != 0:
        raise SetupError(f"`{' '.join(command)}` does not work here: {done.stderr.strip()}")
