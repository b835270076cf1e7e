"""``python -m millwheel.chaos.namespaced_worker``: a worker, with the arguments of one, in the network namespace of its
slot."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from millwheel.chaos.namespaces import PREFIX, address_of, namespace_of
from millwheel.launch.launchers.base import WORKER_MODULE

MODULE = "millwheel.chaos.namespaced_worker"


def command(arguments: Sequence[str], prefix: str) -> list[str]:
    """The argv of the worker: it serves on the address of its slot."""
    slot = int(arguments[arguments.index("--slot") + 1])
    given = list(arguments)
    given[given.index("--listen") + 1] = f"{address_of(slot)}:0"
    # `ip netns exec` becomes the command, so the worker has the process id, and the parent, that its supervisor knows.
    return ["ip", "netns", "exec", namespace_of(prefix, slot), sys.executable, "-m", WORKER_MODULE, *given]


if __name__ == "__main__":
    argv = command(sys.argv[1:], os.environ[PREFIX])
    os.execvp(argv[0], argv)
