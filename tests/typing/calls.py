"""Checked by mypy and basedpyright in ``tests/slow/test_typing.py``: right calls of streams pass,
wrong ones do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel import (
    AfterCount,
    Computation,
    Context,
    CsvFormat,
    FileSink,
    FileSource,
    KafkaSink,
    KafkaSource,
    Pipeline,
    PostgresSink,
    Record,
    RedisLookup,
    Sessions,
    Tumbling,
    ValueState,
    agg,
    param,
)
from millwheel.client import Injector
from millwheel.plugins import Lookup, LookupKey, NoAnswer
from millwheel.testing import PipelineHarness
from millwheel.testing.contracts import IDENTITY, SinkWorld


class Limit(Computation):
    seen = ValueState(int, default=0)

    def process_record(self, ctx: Context, record: Record) -> None:
        self.seen.set(self.seen.get() + 1)


p = Pipeline("p")
hits = p.read(
    "hits", FileSource(param("input"), "jsonl"), timestamp="ts", fields={"a": int, "b": "float"}
)
one = hits.key_by("user").process(Limit)
kept, left = hits.key_by("user", "path").process(Limit, output=["kept", "left"])
keyed = p.flatten(one, kept).key_by(lambda value: value["x"])
both = (
    keyed.window(Tumbling("1m"), late="refire")
    .trigger(AfterCount(3))
    .aggregate({"n": agg.count(), "m": "count"})
)
both.write(FileSink("out", flush="1s")).filter("n > 3").map({"n": "n"}, shards=4)
orders = p.read(
    "orders",
    KafkaSource("b:1", ["orders"], CsvFormat(columns=["ts"]), start={"group": "g"}),
    timestamp="ts",
)
orders.look_up(RedisLookup("redis://r", "k:{k}"), field="found").write(
    KafkaSink("b:1", "t", mode="upsert", key="k")
)

hits.window(Sessions("1m"), output_time="begin")  # error
hits.map(3)  # error
hits.key_by("a").write(FileSink("x"))  # error
p.read("x", "file")  # error
hits.process(int)  # error
hits.windw(Tumbling("1m"))  # error
hits.filter("x", shard=4)  # error
FileSource("x", "json")  # error
PostgresSink("d", "t", mode="replace")  # error
KafkaSource("b:1")  # error
CsvFormat(column=["a"])  # error
KafkaSink("b:1", "t", keys="k")  # error
agg.top_k("x")  # error
kept.key_by("a").aggregate({}, evry="1s")  # error


class Names(Lookup):
    where = "a file"
    by = ("id",)

    def look_up(self, keys: Sequence[LookupKey]) -> Sequence[Any]:
        return [NoAnswer(f"{IDENTITY} has none")] * len(keys)


def push(harness: PipelineHarness, injector: Injector, world: SinkWorld) -> int:
    harness.push("hits", {"a": 1})
    harness.push_all("hits", {"a": 1})  # error
    NoAnswer(3)  # error
    world.rows(1)  # error
    return injector.send([{"a": 1}], ids="x").accepted + injector.send()  # error
