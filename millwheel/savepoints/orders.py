"""Orders to all workers of a running pipeline, and their answers.

Orders and answers are members of two roles in the coordination service, so whoever gave an order and dies takes it
back. Of all orders that stand the one with the highest number counts.
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
    """What is asked for. REST: read nothing new and finish what is on its way. HOLD: do nothing at all. SAVE: copy the
    shards of the cut, if they stand where it says. FINISH: read nothing more, for ever; time goes on to its end.
    SETTLE: go on as ever, and say which shards have nothing to do."""

    REST = "rest"
    HOLD = "hold"
    SAVE = "save"
    FINISH = "finish"
    SETTLE = "settle"


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Where a shard stands: the lease token, its last commit, which is durable, and how much is unfinished. Asked for
    by an order to catch up: the watermark of its input that it has heard, the one that it reports, how far silence has
    moved it, and its counters."""

    token: Token
    commit: int
    unrest: int = 0
    heard: int = MIN_TIME
    reports: int = MIN_TIME
    idle_us: int = MIN_TIME
    counters: dict[str, int] = {}


class SavepointOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """One order. ``savepoint`` names what it is for. ``place`` is the folder that the shards of ``cut`` are copied to;
    with ``stay`` nothing goes on afterwards, until the order is taken back. With ``catch_up`` a source rests only where
    no earlier owner of its shards can have read further."""

    savepoint: str
    number: int
    phase: Phase
    place: str = ""
    stay: bool = False
    catch_up: bool = False
    cut: dict[str, Standing] = {}

    @property
    def name(self) -> str:
        """The name of its member."""
        return f"{self.savepoint}-{self.number}"


class OrderAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one worker says to one order: where shards stand that do what was asked for, or what went wrong."""

    savepoint: str
    number: int
    shards: dict[str, Standing] = {}
    problem: str = ""


encode = msgspec.json.Encoder().encode
_decode_order = msgspec.json.Decoder(SavepointOrder).decode
_decode_answer = msgspec.json.Decoder(OrderAnswer).decode


def standing_order(members: Mapping[str, bytes]) -> SavepointOrder | None:
    """The order that counts. An order to finish is never overtaken; else savepoints come one after the other. One to
    settle waits for all of them: it stands for as long as a run does.

    Raises CorruptionError when a member is no order.
    """
    try:
        orders = [_decode_order(data) for data in members.values()]
    except DAMAGE as ex:
        raise CorruptionError(f"{', '.join(members)} in ZooKeeper: at least one of them is no order: {ex}") from ex
    finish = next((order for order in orders if order.phase is Phase.FINISH), None)
    if finish is not None or not orders:
        return finish
    orders = [order for order in orders if order.phase is not Phase.SETTLE] or orders
    first = min(order.savepoint for order in orders)
    return max((order for order in orders if order.savepoint == first), key=lambda order: order.number)


def answers_to(order: SavepointOrder, members: Mapping[str, bytes]) -> list[OrderAnswer]:
    """The answers to one order. Raises CorruptionError when a member is no answer."""
    try:
        answers = [_decode_answer(data) for data in members.values()]
    except DAMAGE as ex:
        raise CorruptionError(f"{', '.join(members)} in ZooKeeper: at least one of them is no answer: {ex}") from ex
    return [each for each in answers if (each.savepoint, each.number) == (order.savepoint, order.number)]
