"""The reports of a worker that wait to be sent to the watermark service, and the ones that were.

The newest report of each shard is remembered, and all of them are sent again in every new session,
so that a service that starts from nothing has its tiling complete as soon as every worker has found
it.
"""

from __future__ import annotations

from collections.abc import Sequence

from millwheel.adapters.grpc.node_reports import NodeReports
from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.core.model.watermark import ShardReport

_FRAME_BYTES = 2**20  # a message of reports is sent once it is this large


class ReportQueue:
    """For one thread at a time."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeReports] = {}

    def node(self, name: str) -> NodeReports:
        """The reports of the shards of one node."""
        if name not in self._nodes:
            self._nodes[name] = NodeReports(name)
        return self._nodes[name]

    def put(self, node: str, reports: Sequence[ShardReport]) -> None:
        """A newer report of a shard replaces one that was not sent yet; one under an older token is
        dropped."""
        self.node(node).put(reports)

    def forget(self, shard: str) -> None:
        """The shard left this worker: it is not reported again."""
        for node in self._nodes.values():
            node.forget(shard)

    def begin(self) -> None:
        """A new session, in which everything is to be sent again."""
        for node in self._nodes.values():
            node.begin()

    def waiting(self) -> bool:
        """True when :meth:`take` has something to say."""
        return any(node.waiting() for node in self._nodes.values())

    def take(self) -> list[pb.ReportFrame]:
        """All that was not sent yet, to be sent in this order and in this session: usually one
        message."""
        frames: list[list[pb.Reports]] = []
        size = _FRAME_BYTES
        for part in (part for node in self._nodes.values() for part in node.take()):
            if size >= _FRAME_BYTES:
                frames.append([])
                size = 0
            frames[-1].append(part)
            size += part.ByteSize()
        return [pb.ReportFrame(nodes=parts) for parts in frames]
