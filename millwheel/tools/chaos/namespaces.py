"""Hosts for workers: network namespaces, so that each host can be cut off from all others and
reconnected.

    hub       the driver, ZooKeeper, master and injector, and the bridge that all hosts are on
    h0, h1 …  one for each host, with one end of a veth pair; the other end is on the bridge

The slots of workers are dealt to the hosts in turn. As many hosts as workers give each worker one
of its own.

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
"""The variable with the prefix of the names of a worker's namespaces."""
HOSTS = "MILLWHEEL_NAMESPACES_COUNT"
"""The variable with the number of hosts."""
MAX_HOSTS = 200  # addresses that there are in the network of the hub
_NAME = "mwchaos"
_BRIDGE = "millwheel"
_FOLDER = Path("/run/netns")
_NEWNET = 0x40000000  # Fixed: CLONE_NEWNET of Linux
_PATIENCE_S = 20.0  # for one command of ip(8)


def host_of(slot: int, hosts: int) -> int:
    """The number of the host on which the worker of a slot runs."""
    return slot % hosts


def address_of(host: int) -> str:
    """The address on which the workers of a host serve."""
    return f"10.213.0.{10 + host}"


def hub_of(prefix: str) -> str:
    """The namespace of the driver."""
    return f"{prefix}-hub"


def namespace_of(prefix: str, host: int) -> str:
    """The namespace of a host."""
    return f"{prefix}-h{host}"


class Namespaces:
    """A context, in which the calling thread, and all that it starts, is in the hub.

    Raises SetupError, with the reason, when this machine has no namespaces; then nothing of them is
    left.
    """

    def __init__(self, hosts: int) -> None:
        self.hosts = hosts
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

    @property
    def environment(self) -> dict[str, str]:
        """The variables for a run in these namespaces, and for each of its workers."""
        return {PREFIX: self.prefix, HOSTS: str(self.hosts)}

    def host_of(self, slot: int) -> int:
        """The number of the host on which the worker of a slot runs."""
        return host_of(slot, self.hosts)

    def cut(self, host: int) -> None:
        """Drop everything to and from a host from now on."""
        _run(*self._hub("link", "set", f"h{host}", "nomaster"))

    def reconnect(self, host: int) -> None:
        """Undo :meth:`cut`."""
        _run(*self._hub("link", "set", f"h{host}", "master", _BRIDGE))

    def _check(self) -> None:
        if os.geteuid() != 0:
            raise SetupError("network namespaces need root")
        if shutil.which("ip") is None:
            raise SetupError("network namespaces need the command `ip` (package iproute2)")
        if self.hosts > MAX_HOSTS:
            raise SetupError(f"there is room for {MAX_HOSTS} hosts in namespaces")

    def _hub(self, *words: str) -> Sequence[str]:
        return "ip", "-n", hub_of(self.prefix), *words

    def _make(self) -> None:
        _run("ip", "netns", "add", hub_of(self.prefix))
        _run(*self._hub("link", "set", "lo", "up"))
        _run(*self._hub("link", "add", _BRIDGE, "type", "bridge"))
        _run(*self._hub("addr", "add", f"{HUB_ADDRESS}/24", "dev", _BRIDGE))
        _run(*self._hub("link", "set", _BRIDGE, "up"))
        for host in range(self.hosts):
            namespace, port = namespace_of(self.prefix, host), f"h{host}"
            _run("ip", "netns", "add", namespace)
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
            _run(
                *self._hub(
                    "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace
                )
            )
            _run(*self._hub("link", "set", port, "master", _BRIDGE, "up"))
            _run("ip", "-n", namespace, "addr", "add", f"{address_of(host)}/24", "dev", "eth0")
            _run("ip", "-n", namespace, "link", "set", "eth0", "up")


def _existing(prefix: str) -> list[str]:
    return sorted(path.name for path in _FOLDER.glob(f"{prefix}-*"))


def _left_behind() -> list[str]:
    """Namespaces of runs that were killed before they could remove them."""
    pairs = [(name, name.split("-")[1]) for name in _existing(_NAME)]
    return [name for name, pid in pairs if pid.isdecimal() and not psutil.pid_exists(int(pid))]


def _enter(namespace: int) -> None:
    """Go there with this thread (:func:`os.setns` is of Python 3.12), and close the descriptor."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace, _NEWNET) != 0:
            raise SetupError(
                f"a network namespace cannot be entered: {os.strerror(ctypes.get_errno())}"
            )
    finally:
        os.close(namespace)


def _run(*command: str) -> None:
    # In a session of its own: Ctrl-C is for us, and we then remove everything made.
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"`{' '.join(command)}` does not work here: {error}") from error
    if done.returncode != 0:
        raise SetupError(f"`{' '.join(command)}` does not work here: {done.stderr.strip()}")
