"""The ads example's own code: every client pays for its clicks, and is reported once when its
budget is spent."""

from __future__ import annotations

import msgspec

from millwheel import Computation, Context, Record, ValueState

MICROS = 1_000_000


class Account(msgspec.Struct):
    """What a client has spent, in millionths, and whether its budget was reported as spent."""

    spent: int = 0
    clicks: int = 0
    reported: bool = False


class Billing(Computation):
    """Bills clicks. ``budget`` is what every client may spend."""

    account = ValueState(Account, default=Account)

    def __init__(self, budget: float = 50) -> None:
        self.budget = round(budget * MICROS)

    def process_record(self, ctx: Context, record: Record) -> None:
        event = record.value
        if event["type"] != "click":
            return
        account = self.account.get()
        account.clicks += 1
        account.spent += round(event["cost"] * MICROS)
        if account.spent > self.budget and not account.reported:
            account.reported = True
            ctx.produce(
                "over_budget",
                {"client_id": ctx.key, "spent_micros": account.spent, "clicks": account.clicks},
            )
        self.account.set(account)
