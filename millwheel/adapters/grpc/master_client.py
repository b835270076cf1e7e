"""Questions to the elected master."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import grpc

from millwheel.adapters.grpc.channels import CALL_TIMEOUT_S, new_channel
from millwheel.adapters.grpc.security import Security
from millwheel.adapters.pb import master_pb2 as pb
from millwheel.adapters.pb.master_pb2_grpc import MasterStub
from millwheel.errors import SetupError, UnavailableError

_GRACE_S = 2.0  # beyond the master's own timeout, whose answer is more precise
_Reply = TypeVar("_Reply", pb.DescribeReply, pb.MoveReply)


class MasterClient:
    """Asks the master at ``address``. Every method raises SetupError, with the master's own words,
    when it refuses, and UnavailableError if it does not answer; it may have carried out the request
    all the same."""

    def __init__(self, address: str, security: Security | None) -> None:
        self._address = address
        self._security = security

    def describe(self) -> pb.DescribeReply:
        """Workers, tables, and the state of shards."""
        return self._ask(lambda stub: stub.Describe(pb.DescribeRequest(), timeout=CALL_TIMEOUT_S))

    def members(self) -> pb.DescribeReply:
        """The state of each living worker, and the hosts whose loss would leave seats empty."""
        request = pb.DescribeRequest(members_only=True)
        return self._ask(lambda stub: stub.Describe(request, timeout=CALL_TIMEOUT_S))

    def move(self, node: str, shard: str, worker: str) -> None:
        """Begin a planned move of a shard."""
        request = pb.MoveRequest(node=node, shard=shard, worker=worker)
        self._accepted(
            self._ask(lambda stub: stub.Move(request, timeout=CALL_TIMEOUT_S + _GRACE_S))
        )

    def split(self, node: str, shard: str, at: str) -> None:
        """Begin a split at a hash in hex, or, with "", in the middle of the range."""
        request = pb.ReshapeRequest(node=node, shard=shard, at=at)
        self._accepted(
            self._ask(lambda stub: stub.Reshape(request, timeout=CALL_TIMEOUT_S + _GRACE_S))
        )

    def merge(self, node: str, lower: str, upper: str) -> None:
        """Begin a merge of two neighbours."""
        request = pb.ReshapeRequest(node=node, shard=lower, merge_with=upper)
        self._accepted(
            self._ask(lambda stub: stub.Reshape(request, timeout=CALL_TIMEOUT_S + _GRACE_S))
        )

    def _ask(self, call: Callable[[MasterStub], _Reply]) -> _Reply:
        try:
            with new_channel(self._address, self._security) as channel:
                return call(MasterStub(channel))
        except grpc.RpcError as ex:
            words = ex.details() or ex.code() if isinstance(ex, grpc.Call) else ex
            raise UnavailableError(f"the master at {self._address} did not answer: {words}") from ex

    @staticmethod
    def _accepted(reply: pb.MoveReply) -> None:
        if not reply.accepted:
            raise SetupError(f"The master refuses: {reply.reason}")
