"""Orders to all workers of a running pipeline, and their answers.

Orders and answers are members of two roles in the coordination service. An order therefore
disappears if the process that gave it dies. Of all current orders the one with the highest number
counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.names import Token
from millwheel.core.model.times import MIN_TIME
from millwheel.errors import CorruptionError

ORDERS = "orders"
"""The role whose members are orders."""
ANSWERS = "answers"
"""The role whose members are answers to them."""


class Phase(Enum):
    """The content of an order. REST: read nothing new, and finish the records in flight. HOLD: run
    no bundle. SAVE: copy the shards that still stand at their commits in the cut. FINISH: never
    read again; time advances to its end. SETTLE: continue as usual, and report shards that have
    nothing to do."""

    REST = "rest"
    HOLD = "hold"
    SAVE = "save"
    FINISH = "finish"
    SETTLE = "settle"


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """The state of a shard: its lease token, its last durable commit, and how much is unfinished.
    An order to catch up also asks for the watermark of its input that it has received, the
    watermark that it reports, the time to which silence has moved it, and its counters."""

    token: Token
    commit: int
    unfinished: int = 0
    received: int = MIN_TIME
    reports: int = MIN_TIME
    idle_us: int = MIN_TIME
    counters: dict[str, int] = {}


class SavepointOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """One order for the ``savepoint`` of that name. The shards of ``cut`` are copied to the folder
    ``folder``. With ``stay`` they stand still afterwards until the order is withdrawn. With
    ``catch_up`` a source comes to rest only at a position beyond which no earlier owner of its
    shards can have read. With ``settle`` a shard that has something to do is not finished, and
    reports how far time has come."""

    savepoint: str
    number: int
    phase: Phase
    folder: str = ""
    stay: bool = False
    catch_up: bool = False
    settle: bool = False
    cut: dict[str, Standing] = {}

    @property
    def name(self) -> str:
        """The name of its member."""
        return f"{self.savepoint}-{self.number}"


class OrderAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of one worker to one order: the state of its shards that have complied, or an
    error."""

    savepoint: str
    number: int
    shards: dict[str, Standing] = {}
    problem: str = ""


encode = msgspec.json.Encoder().encode
_decode_order = msgspec.json.Decoder(SavepointOrder).decode
_decode_answer = msgspec.json.Decoder(OrderAnswer).decode


def standing_order(members: Mapping[str, bytes]) -> SavepointOrder | None:
    """The order that counts. An order to finish always takes precedence; savepoints come one after
    the other. An order to settle comes after all of them, because it lasts as long as a run.

    Raises CorruptionError if a member is not an order.
    """
    try:
        orders = [_decode_order(data) for data in members.values()]
    except DAMAGE as ex:
        raise CorruptionError(
            f"{', '.join(members)} in ZooKeeper: at least one of them is not an order: {ex}"
        ) from ex
    finish = next((order for order in orders if order.phase is Phase.FINISH), None)
    if finish is not None or not orders:
        return finish
    orders = [order for order in orders if order.phase is not Phase.SETTLE] or orders
    first = min(order.savepoint for order in orders)
    return max(
        (order for order in orders if order.savepoint == first), key=lambda order: order.number
    )


def answers_to(order: SavepointOrder, members: Mapping[str, bytes]) -> list[OrderAnswer]:
    """The answers to one order. Raises CorruptionError if a member is not an answer."""
    try:
        answers = [_decode_answer(data) for data in members.values()]
    except DAMAGE as ex:
        raise CorruptionError(
            f"{', '.join(members)} in ZooKeeper: at least one of them is not an answer: {ex}"
        ) from ex
    return [
        each for each in answers if (each.savepoint, each.number) == (order.savepoint, order.number)
    ]
