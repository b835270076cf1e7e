"""Sends records from outside to the worker that owns a shard of an injection source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from millwheel.adapters.grpc.channels import new_channel
from millwheel.adapters.grpc.security import Security
from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.adapters.pb.worker_pb2_grpc import WorkerStub
from millwheel.errors import UnavailableError

_TIMEOUT_S = 35.0  # longer than the worker's own timeout, whose answer is more precise


@dataclass(frozen=True, slots=True)
class OutsideRecord:
    """A record from outside: its id, its value as JSON, and the trace context that it comes with,
    if any: the text of ``traceparent``, and that of ``tracestate`` on a second line."""

    id: str
    value: bytes
    trace: str = ""


@dataclass(frozen=True, slots=True)
class InjectionResult:
    """The durable result of a batch. ``moved``: no record was taken, because the shard has another
    owner."""

    moved: bool = False
    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0

    def __add__(self, other: InjectionResult) -> InjectionResult:
        return InjectionResult(
            self.moved or other.moved,
            self.accepted + other.accepted,
            self.duplicates + other.duplicates,
            self.rejected + other.rejected,
        )


class InjectionClient:
    """Connections to workers, kept while they are used. Calls may come from several threads."""

    def __init__(self, security: Security | None = None) -> None:
        self._security = security
        self._channels: dict[str, grpc.Channel] = {}

    def inject(
        self, address: str, stream: str, shard: str, records: Sequence[OutsideRecord]
    ) -> InjectionResult:
        """Send one batch; returns once it is durable.

        Raises UnavailableError when the worker does not answer: the batch may have been taken or
        not, and is to be sent again under the same ids.
        """
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels.setdefault(address, new_channel(address, self._security))
        request = pb.InjectRequest(stream=stream, target=shard)
        request.records.extend(
            pb.InjectRecord(value=record.value, id=record.id, trace=record.trace)
            for record in records
        )
        try:
            reply = WorkerStub(channel).Inject(request, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            details = error.details() if isinstance(error, grpc.Call) else error
            raise UnavailableError(
                f"the worker at {address} did not take the records: {details}"
            ) from error
        return InjectionResult(reply.moved, reply.accepted, reply.duplicates, reply.rejected)

    def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            channel.close()
