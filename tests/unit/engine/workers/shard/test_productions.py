"""What a bundle produced becomes a numbered chunk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import polars as pl

from millwheel.api import Computation
from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.spec import DEAD_LETTERS, Productions
from millwheel.engine.workers.shard.productions import earliest_of, most_bytes
from tests.unit.engine.workers.bench import (
    Counting,
    Dial,
    ShardBench,
    computation,
    pipeline,
    values_of,
)


class Large(Computation):
    """Makes a value of so many bytes of every record."""

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.produce("out", {"key": ctx.key, "text": "x" * record.value})


class Unread(Computation):
    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.produce("nobody", 1)


def test_numbers_go_on_from_bundle_to_bundle_and_from_owner_to_owner() -> None:
    bench = ShardBench(Counting)
    seqs: list[int] = []
    for number in range(1, 4):
        bench.deliver(("a", number, 5), ("b", number, 6), first=2 * number - 1)
        bench.run()
        bench.settle()
        sends = bench.sends()
        seqs += [seq for send in sends for seq in send.batch.seqs]
        bench.ack(*sends)
    assert seqs == [1, 2, 3, 4, 5, 6]
    bench.crash()
    bench.deliver(("a", 9, 9), first=7)
    bench.run()
    bench.settle()
    again = [seq for send in bench.sends() for seq in send.batch.seqs]
    assert again == [5, 6, 7], "the end of the last ones is in no commit yet"


def test_a_record_over_the_limit_is_a_dead_letter_and_its_number_is_given_to_another() -> None:
    bench = ShardBench(Large)
    most = bench.assembly.spec.limits.record
    bench.deliver(("a", most + 1, 5), ("b", 3, 6))
    found = bench.through()
    assert [row["key"] for row in found] == ["b"]
    [letter] = vars(bench)["letters"]
    assert letter["what"] == "production"
    assert letter["key"] == "a"
    assert len(msgspec.msgpack.encode(letter)) < most
    bench.deliver(("c", 1, 7), first=3)
    bench.run()
    bench.settle()
    assert [send.batch.seqs for send in bench.sends() if send.batch.stream == "out"] == [[3]], (
        "one went to the letter"
    )


def test_weak_productions_begin_their_ids_with_who_made_them() -> None:
    """Two computations may make something of one record, and a third may consume both."""
    bench = ShardBench(Counting, Dial(productions=Productions.WEAK))
    bench.deliver(("a", 1, 5))
    bench.run()
    [send] = bench.sends()
    assert send.batch.ids is not None
    assert send.batch.ids[0].startswith(msgspec.msgpack.encode("work"))


def test_what_nobody_consumes_is_counted_and_not_kept() -> None:
    work = replace(computation(callback="bench:It"), outputs=("out", "nobody"))
    bench = ShardBench(Unread, spec=pipeline(work))
    bench.deliver(("a", 1, 5), ("b", 1, 6))
    bench.run()
    bench.settle()
    assert bench.sends() == []
    assert bench.shard.meta.counters == {"unconsumed.nobody": 2}


def test_dead_letters_are_a_stream_like_others() -> None:
    class Broken(Computation):
        def process_record(self, ctx: Any, record: Any) -> None:
            raise ValueError(record.value)

    bench = ShardBench(Broken, Dial(max_attempts=1))
    bench.deliver(("a", 1, 5))
    bench.run()
    bench.settle()
    sends = bench.sends()
    assert next(value["reason"] for value in values_of(sends, DEAD_LETTERS)).endswith(
        "ValueError: 1"
    )


def test_the_earliest_of_no_records_is_the_end_of_time() -> None:
    assert earliest_of([]) == MAX_TIME
    batches = [
        ("n", Batch("s", [1, 2], [7, 3], ["a", "a"], [1, 2])),
        ("m", Batch("s", [1], [5], ["a"], [1])),
    ]
    assert earliest_of(batches) == 3


def test_no_row_with_structs_takes_more_than_is_said() -> None:
    rows = [
        {"ä": {"text": text, "n": n, "x": 0.1, "b": True}, "none": None, "k": "é" * 9}
        for text, n in TEXTS
    ]
    kinds = {"text": pl.String, "n": pl.Int64, "x": pl.Float64, "b": pl.Boolean}
    frame = pl.DataFrame(rows, {"ä": pl.Struct(kinds), "none": pl.Struct(kinds), "k": pl.String})
    most = max(len(msgspec.msgpack.encode(row)) for row in rows)
    assert most <= most_bytes(frame) <= 2 * most
    assert most_bytes(frame.clear()) == most_bytes(pl.DataFrame({"n": [1], "x": [0.5]})) == 0


def test_no_row_with_texts_takes_more_than_is_said() -> None:
    rows = [{"text": text, "n": n} for text, n in TEXTS]
    frame = pl.DataFrame(rows, {"text": pl.String, "n": pl.Int64})
    most = max(len(msgspec.msgpack.encode(row)) for row in rows)
    assert most <= most_bytes(frame) <= 2 * most + 40  # of heads


TEXTS = [("x" * 300, 1), ("日本" * 40, -(2**63)), ("", 2**63 - 1)]
