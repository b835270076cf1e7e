"""The address that a process of a run serves on."""

from __future__ import annotations

import socket

from millwheel.errors import SetupError

LOOPBACK = "127.0.0.1"
EMBEDDED = "embedded"
"""As ``--zookeeper``: a ZooKeeper of the run's own, even on a single machine."""
AUTO = "auto"
"""The address of the network interface by which this machine reaches ZooKeeper."""


def listen_on(listen: str, zookeeper: str) -> str:
    """``host:0`` to serve on: ``listen`` itself or, for :data:`AUTO`, the address by which others
    reach this machine.

    Raises SetupError when the machine has no route to ZooKeeper.
    """
    return f"{_facing(zookeeper) if listen == AUTO else listen}:0"


def check_reach(listen: str, zookeeper: str) -> None:
    """Raise SetupError when processes on other machines are to join but cannot reach our
    ZooKeeper."""
    if listen != LOOPBACK and zookeeper in ("", EMBEDDED):
        raise SetupError(
            f"--listen {listen} lets other machines in, but they cannot reach this run's own"
            " coordinator: it serves this machine only. Name one that all machines reach:"
            " --zookeeper host:port/chroot"
        )


def _facing(zookeeper: str) -> str:
    host, _, port = zookeeper.partition("/")[0].partition(",")[0].rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))  # sends nothing: it only asks the kernel for the route
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise SetupError(
            f"This machine ({socket.gethostname()}) has no way to ZooKeeper at {zookeeper}:"
            f" {error}. Check --zookeeper, or name an address of every machine with --listen"
        ) from error
