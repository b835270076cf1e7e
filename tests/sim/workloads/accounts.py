"""Money moves between accounts, and an auditor looks at every movement: nothing is created, lost,
or spent twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from millwheel.api import Computation, ValueState
from millwheel.core.pipeline.spec import (
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from tests.computations import computation_spec
from tests.sim.kernel import Failure
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal

INITIAL = 100


class Account(Computation):
    """Orders debit the account of the payer, and what they produce credits that of the payee: it
    consumes its own output. An order over nothing fails after it has changed the balance, which
    must be undone."""

    balance = ValueState(int, default=INITIAL)
    moves = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        amount, n = record.value["amount"], record.value["n"]
        if record.stream == "credits":
            self._move(ctx, n, amount)
            return
        if amount > self.balance.get():
            ctx.produce("refused", {"n": n, "account": ctx.key})
            return
        self._move(ctx, n, -amount)
        if not amount:
            raise ValueError("an order over nothing")
        ctx.produce("credits", {"to": record.value["to"], "amount": amount, "n": n})

    def _move(self, ctx: Any, n: int, delta: int) -> None:
        self.balance.set(self.balance.get() + delta)
        self.moves.set(self.moves.get() + 1)
        ctx.produce(
            "moves",
            {
                "account": ctx.key,
                "n": n,
                "delta": delta,
                "balance": self.balance.get(),
                "move": self.moves.get(),
            },
        )


class Auditor(Computation):
    """Sees both sides of each transfer once."""

    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.seen.set(self.seen.get() + record.value["delta"])
        if self.seen.get() == 0:
            ctx.produce("balanced", {"n": ctx.key})


class Accounts(Workload):
    """orders → account ⟲ credits → auditor → sinks."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.code = {"sim:Account": Account, "sim:Auditor": Auditor}
        # no watermark says when a computation that consumes its own output is done
        self.settle_us = 3 * SECOND
        self.accounts = self.rng.choice([2, 5, 30])
        self.orders: dict[int, dict[str, Any]] = {}
        self.rows = {"orders": {f"p{i}": self._partition() for i in range(self.rng.randint(1, 3))}}

    def _partition(self) -> list[Any]:
        rng, rows, time = self.rng, [], START_US
        for _ in range(self.count(0, 120)):
            time += rng.randint(0, SECOND // 2)
            n = len(self.orders)
            amount = 0 if rng.random() < 0.05 else rng.randint(1, 60)
            a, b = (f"a{rng.randrange(self.accounts)}" for _ in range(2))
            row = {"n": n, "from": a, "to": b, "amount": amount, "id": str(n), "ts": time}
            self.orders[n] = row
            rows += [row] * (2 if rng.random() < 0.1 else 1)
        return rows

    def spec(self) -> PipelineSpec:
        source = SourceSpec("memory", {"stream": "orders"})
        stream = StreamSpec("orders", source, timestamp="ts", id="id", max_delay_us=SECOND)
        account = computation_spec(
            "account",
            (InputSpec("orders", by("from")), InputSpec("credits", by("to"))),
            ("credits", "moves", "refused"),
            callback="sim:Account",
            max_attempts=1,
        )
        auditor = computation_spec(
            "auditor",
            (InputSpec("moves", by("n")),),
            ("balanced",),
            callback="sim:Auditor",
            max_attempts=1,
        )
        sinks = tuple(
            SinkSpec(name, "memory") for name in ("moves", "refused", "balanced", "dead_letters")
        )
        return PipelineSpec("sim", (stream,), (account, auditor), sinks, "/nowhere")

    def look(self, stream: str, row: Any) -> None:
        if stream == "moves" and row["balance"] < 0:
            raise Failure(f"no account is overdrawn: {row}", (row["account"], str(row["n"])))

    def check(self) -> None:
        moves, refused = self.sinks.rows("moves"), self.sinks.rows("refused")
        for account, mine in self._by_account(moves).items():
            numbers = [row["move"] for row in mine]
            if numbers != list(range(1, len(mine) + 1)):
                raise Failure(
                    f"records of a key are applied once, one by one: {account} moved {numbers}",
                    (account,),
                )
            balance = INITIAL
            for row in mine:
                balance += row["delta"]
                if row["balance"] != balance:
                    raise Failure(
                        f"records of a key are applied once, one by one: {row} at {balance}",
                        (account,),
                    )
        if sum(row["delta"] for row in moves):
            raise Failure(f"sums are conserved: {sum(row['delta'] for row in moves)} too much")
        rejected = {row["n"] for row in refused}
        orders = {row["n"]: row for rows in self.rows["orders"].values() for row in rows}
        valid = {n: row for n, row in orders.items() if row["amount"] and n not in rejected}
        debits = Counter(
            (row["n"], row["account"], row["delta"]) for row in moves if row["delta"] < 0
        )
        credits = Counter(
            (row["n"], row["account"], row["delta"]) for row in moves if row["delta"] > 0
        )
        equal(
            "debits", debits, Counter((n, row["from"], -row["amount"]) for n, row in valid.items())
        )
        equal(
            "credits", credits, Counter((n, row["to"], row["amount"]) for n, row in valid.items())
        )
        equal("refused", Counter(row["n"] for row in refused), Counter(rejected))
        equal(
            "balanced",
            Counter(row["n"] for row in self.sinks.rows("balanced")),
            Counter(valid.keys()),
        )
        nothings = sum(1 for row in orders.values() if not row["amount"])
        equal(
            "dead_letters",
            Counter(letters=len(self.sinks.rows("dead_letters"))),
            Counter(letters=nothings),
        )

    def _by_account(self, moves: list[Any]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = defaultdict(list)
        for row in sorted(moves, key=lambda row: row["move"]):
            found[row["account"]].append(row)
        return found
