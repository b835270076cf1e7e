"""Random graphs of computations: fan-in and fan-out, other keys at every step, poison, and every
guarantee dial."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from millwheel.api import Computation, ValueState
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    Delivery,
    InputSpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from tests.computations import computation_spec
from tests.sim.kernel import Failure
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal

FIELDS = ("a", "b", "c")


class Step(Computation):
    """Passes each record on, under its own name: some twice, some not at all, and some cannot be
    used."""

    seen = ValueState(int, default=0)

    def __init__(self, name: str, copies: int, poison: int) -> None:
        self.name, self.copies, self.poison = name, copies, poison

    def process_record(self, ctx: Any, record: Any) -> None:
        value = record.value
        self.seen.set(self.seen.get() + 1)
        for made in outcome(self.name, self.copies, self.poison, value):
            ctx.produce(self.name, made)


def outcome(name: str, copies: int, poison: int, value: dict[str, Any]) -> list[dict[str, Any]]:
    """What a step makes of a record; ValueError when it is poison to it."""
    if value["n"] % poison == 1:
        raise ValueError("poison")
    count = value["n"] % (copies + 1)
    return [
        {**value, "path": f"{value['path']}>{name}.{i}", "b": (value["b"] + i) % 7}
        for i in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Plan:
    """One computation of the graph: what it consumes, by which key, and how it is to be treated."""

    name: str
    inputs: tuple[tuple[str, str], ...]
    copies: int
    poison: int
    delivery: Delivery
    productions: Productions


class Graphs(Workload):
    """One or two sources → two to five steps, each of any of the streams before it → a sink for
    each stream."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        rng = self.rng
        self.code = {"sim:Step": Step}
        streams = [f"s{i}" for i in range(rng.randint(1, 2))]
        self.rows = {
            stream: {f"p{i}": self._partition(f"{stream}.{i}") for i in range(rng.randint(1, 2))}
            for stream in streams
        }
        self.plans: list[Plan] = []
        for number in range(rng.randint(2, 5)):
            chosen = rng.sample(streams, min(len(streams), rng.choice([1, 1, 2])))
            inputs = tuple((stream, rng.choice(FIELDS)) for stream in chosen)
            plan = Plan(
                f"c{number}", inputs, rng.choice([1, 2]), rng.choice([11, 10**9]), *self._dial(rng)
            )
            self.plans.append(plan)
            streams = [*streams, plan.name]

    @staticmethod
    def _dial(rng: random.Random) -> tuple[Delivery, Productions]:
        exact = Delivery.EXACTLY_ONCE
        dials = [(exact, Productions.STRONG)] * 4 + [(exact, Productions.WEAK)] * 2
        return rng.choice(
            [
                *dials,
                (Delivery.AT_LEAST_ONCE, Productions.STRONG),
                (Delivery.AT_LEAST_ONCE, Productions.WEAK),
            ]
        )

    def _partition(self, name: str) -> list[Any]:
        rng, rows, time = self.rng, [], START_US
        for n in range(self.count(0, 40)):
            time += rng.randint(0, SECOND)
            rows.append(
                {
                    "n": n,
                    "path": f"{name}#{n}",
                    "a": rng.randrange(3),
                    "b": rng.randrange(7),
                    "c": "same",
                    "id": f"{name}#{n}",
                    "ts": time,
                }
            )
            if rng.random() < 0.05:
                rows.append(dict(rows[-1]))
        return rows

    def spec(self) -> PipelineSpec:
        streams = tuple(
            StreamSpec(
                name,
                SourceSpec("memory", {"stream": name}),
                timestamp="ts",
                id="id",
                max_delay_us=SECOND,
            )
            for name in self.rows
        )
        computations = tuple(self._computation(plan) for plan in self.plans)
        sinks = tuple(
            SinkSpec(name, "memory")
            for name in (*(plan.name for plan in self.plans), "dead_letters")
        )
        return PipelineSpec("sim", streams, computations, sinks, "/nowhere")

    def _computation(self, plan: Plan) -> ComputationSpec:
        return computation_spec(
            plan.name,
            tuple(InputSpec(stream, by(field)) for stream, field in plan.inputs),
            (plan.name,),
            callback="sim:Step",
            options={"name": plan.name, "copies": plan.copies, "poison": plan.poison},
            delivery=plan.delivery,
            productions=plan.productions,
            max_attempts=1,
        )

    def expected(self) -> tuple[dict[str, list[dict[str, Any]]], dict[str, bool], int]:
        """(records by stream, whether copies may appear in a stream, dead letters)."""
        made: dict[str, list[dict[str, Any]]] = {}
        loose: dict[str, bool] = {}
        for stream, partitions in self.rows.items():
            made[stream] = list(
                {row["id"]: row for rows in partitions.values() for row in rows}.values()
            )
            loose[stream] = False
        dead = 0
        for plan in self.plans:
            made[plan.name] = []
            loose[plan.name] = plan.delivery is Delivery.AT_LEAST_ONCE or any(
                loose[s] for s, _ in plan.inputs
            )
            for stream, _ in plan.inputs:
                for value in made[stream]:
                    try:
                        made[plan.name] += outcome(plan.name, plan.copies, plan.poison, value)
                    except ValueError:
                        dead += 1
        return made, loose, dead

    def look(self, stream: str, row: Any) -> None:
        if stream != "dead_letters" and not row["path"].rpartition(">")[2].startswith(stream):
            raise Failure(f"no phantoms: {row} in {stream}", (row["path"],))

    def check(self) -> None:
        made, loose, dead = self.expected()
        for plan in self.plans:
            got = Counter(row["path"] for row in self.sinks.rows(plan.name))
            want = Counter(row["path"] for row in made[plan.name])
            if loose[plan.name]:
                got, want = Counter(got.keys()), Counter(want.keys())
            equal(plan.name, got, want)
        letters = len(self.sinks.rows("dead_letters"))
        if letters < dead or (letters > dead and not any(loose.values())):
            raise Failure(
                f"results are those of a run without faults: {letters} dead letters, not {dead}"
            )
