"""Dictionaries: every device has one number for ever, whatever dies, moves or is split."""

from __future__ import annotations

from collections import Counter
from typing import Any

from millwheel.core.pipeline.dictionaries import partition_of
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    DictionarySpec,
    InputSpec,
    KeyKind,
    KeySpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from tests.sim.kernel import Failure
from tests.sim.workloads.base import SECOND, START_US, Workload, equal


class Ids(Workload):
    """A source of visits by devices, many of which come back → a dictionary → a sink."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.devices = self.rng.choice([3, 30, 400])
        self.partitions = self.rng.choice([1, 5, 64])
        self.rows = {"visits": {f"p{i}": self._partition(i) for i in range(self.rng.randint(1, 3))}}

    def _partition(self, number: int) -> list[Any]:
        rng, rows, time_us = self.rng, [], START_US
        for n in range(self.count(1, 150)):
            time_us += rng.randint(0, SECOND)
            device = rng.randrange(self.devices)
            rows.append({"device": f"d{device}" if device % 3 else device, "n": n, "p": number, "ts": time_us})
        return rows

    def spec(self) -> PipelineSpec:
        stream = StreamSpec("visits", SourceSpec("memory", {"stream": "visits"}), timestamp="ts")
        ids = ComputationSpec(
            "ids",
            (InputSpec("visits", KeySpec(KeyKind.FIELD, ("device",), partitions=self.partitions)),),
            ("numbered",),
            dictionary=DictionarySpec("device", "id", self.partitions),
        )
        return PipelineSpec("sim", (stream,), (ids,), (SinkSpec("numbered", "memory"),), "/nowhere")

    def check(self) -> None:
        """Every visit once, every device with one number, and every partition's numbers without a gap."""
        visits = [row for rows in self.rows["visits"].values() for row in rows]
        found = self.sinks.rows("numbered")
        equal("visits", Counter((row["p"], row["n"]) for row in found), Counter((row["p"], row["n"]) for row in visits))
        ids: dict[Any, int] = {}
        for row in found:
            if ids.setdefault(row["device"], row["id"]) != row["id"]:
                raise Failure(f"a device has one number: {row['device']} has {ids[row['device']]} and {row['id']}")
        if len(set(ids.values())) < len(ids):
            raise Failure(f"a number stands for one device: {len(ids)} devices have {len(set(ids.values()))} numbers")
        expected: set[int] = set()
        for partition in range(self.partitions):
            count = sum(partition_of(device, self.partitions) == partition for device in ids)
            expected |= {partition + self.partitions * number for number in range(count)}
        if set(ids.values()) != expected:
            raise Failure(f"partitions count without gaps: {sorted(set(ids.values()) ^ expected)[:5]}")
