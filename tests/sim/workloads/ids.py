"""Dictionaries: every device has one number for ever, or until it is forgotten, whatever dies,
moves or is split."""

from __future__ import annotations

from collections import Counter
from typing import Any

from millwheel.core.pipeline.dictionaries import partition_of
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec, PipelineSpec, SinkSpec, SourceSpec, StreamSpec
from millwheel.core.pipeline.work import DictionarySpec
from tests.computations import computation_spec
from tests.sim.kernel import Failure
from tests.sim.workloads.base import SECOND, START_US, Workload, equal


class Ids(Workload):
    """A source of visits by devices, many of which come back → a dictionary → a sink."""

    ttl_us: int | None = None

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
            rows.append(
                {
                    "device": f"d{device}" if device % 3 else device,
                    "n": n,
                    "p": number,
                    "ts": time_us,
                }
            )
        return rows

    def spec(self) -> PipelineSpec:
        stream = StreamSpec("visits", SourceSpec("memory", {"stream": "visits"}), timestamp="ts")
        ids = computation_spec(
            "ids",
            (InputSpec("visits", KeySpec(KeyKind.FIELD, ("device",), partitions=self.partitions)),),
            ("numbered",),
            dictionary=DictionarySpec("device", "id", self.partitions, ttl_us=self.ttl_us),
        )
        return PipelineSpec("sim", (stream,), (ids,), (SinkSpec("numbered", "memory"),), "/nowhere")

    def check(self) -> None:
        """Every visit once, every device with one number, and every partition's numbers without a
        gap."""
        visits = [row for rows in self.rows["visits"].values() for row in rows]
        found = self.sinks.rows("numbered")
        equal(
            "visits",
            Counter((row["p"], row["n"]) for row in found),
            Counter((row["p"], row["n"]) for row in visits),
        )
        lives = self.lives()
        ids: dict[Any, int] = {}
        for row in found:
            life = lives[row["p"], row["n"]]
            if ids.setdefault(life, row["id"]) != row["id"]:
                raise Failure(f"a device has one number: {life} has {ids[life]} and {row['id']}")
        if len(set(ids.values())) < len(ids):
            raise Failure(
                f"a number stands for one device: {len(ids)} devices have {len(set(ids.values()))}"
                " numbers"
            )
        expected: set[int] = set()
        for partition in range(self.partitions):
            count = sum(partition_of(device, self.partitions) == partition for device, _ in ids)
            expected |= {partition + self.partitions * number for number in range(count)}
        if set(ids.values()) != expected:
            raise Failure(
                f"partitions count without gaps: {sorted(set(ids.values()) ^ expected)[:5]}"
            )

    def lives(self) -> dict[tuple[int, int], tuple[Any, int]]:
        """The device of each visit, and which of its lives it is in."""
        return {
            (row["p"], row["n"]): (row["device"], 0)
            for rows in self.rows["visits"].values()
            for row in rows
        }


class ForgottenIds(Ids):
    """The same with a time to live. Each device visits one partition of the source, whose visits
    come in the order of time: so what is forgotten is the same in every run."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        self.ttl_us = self.rng.choice([3, 8, 20]) * SECOND
        for name, rows in self.rows["visits"].items():
            for row in rows:
                row["device"] = f"{name}-{row['device']}"

    def lives(self) -> dict[tuple[int, int], tuple[Any, int]]:
        assert self.ttl_us is not None
        eighth, found = self.ttl_us // 8, {}
        for rows in self.rows["visits"].values():
            last: dict[Any, int] = {}
            life: dict[Any, int] = {}
            for row in rows:
                device, now = row["device"], row["ts"] // eighth
                gone = device not in last or now - last[device] > 8
                life[device] = life.get(device, -1) + gone
                last[device] = now
                found[row["p"], row["n"]] = (device, life[device])
        return found
