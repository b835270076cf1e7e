"""A watermark service by itself, for part F: one node with so many ranges, in a process of its own.

``python -m bench.injector_process RANGES`` prints its address once it leads; a line on its standard
input is answered with the CPU seconds it has used and its memory in MB; the end of the input ends
it.
"""

from __future__ import annotations

import resource
import sys

from millwheel.control.injector.server import InjectorServer
from millwheel.core.model.names import NodeName, ShardName, Token, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile

NODE, TOKEN, WORKER = NodeName("node"), Token(1), WorkerName("worker")


def main() -> None:
    """See the module."""
    entries = (
        ShardEntry(name_of(index), piece, WORKER, TOKEN)
        for index, piece in enumerate(tile(int(sys.argv[1])))
    )
    server = InjectorServer()
    server.start()
    server.lead([RangeTable(NODE, tuple(entries), 0)])
    print(server.address, flush=True)
    for _ in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6, flush=True)
    server.stop()


def name_of(index: int) -> ShardName:
    """The shard that has the range at this place."""
    return ShardName(f"{NODE}.{index:07d}")


if __name__ == "__main__":
    main()
