"""``python -m millwheel.tools.chaos.namespaced_worker``: a worker, with the arguments of one, in
the network namespace of its host."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from millwheel.adapters.processes.interpreter import module_command
from millwheel.engine.workers.machine import HOST_VARIABLE
from millwheel.launch.launchers.base import WORKER_MODULE
from millwheel.tools.chaos.namespaces import HOSTS, PREFIX, address_of, host_of, namespace_of

MODULE = "millwheel.tools.chaos.namespaced_worker"


def command(arguments: Sequence[str], prefix: str, host: int) -> list[str]:
    """The argv of the worker: it serves on the address of its host."""
    argv = list(arguments)
    argv[argv.index("--listen") + 1] = f"{address_of(host)}:0"
    # `ip netns exec` becomes the command, so the worker has the process id, and the parent, that
    # its supervisor expects.
    return [
        "ip",
        "netns",
        "exec",
        namespace_of(prefix, host),
        *module_command(WORKER_MODULE, argv),
    ]


def main() -> None:
    """Become the worker."""
    arguments = sys.argv[1:]
    host = host_of(int(arguments[arguments.index("--slot") + 1]), int(os.environ[HOSTS]))
    os.environ[HOST_VARIABLE] = f"h{host}"  # namespaces share the name of the machine
    argv = command(arguments, os.environ[PREFIX], host)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
