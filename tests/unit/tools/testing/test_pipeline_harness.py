"""A pipeline in memory: what is pushed goes the real way, and every look at it is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.model.keys import key_hash
from millwheel.core.model.records import Domain
from millwheel.errors import PipelineError
from millwheel.testing import PipelineHarness

S = 1_000_000
Make = Callable[..., PipelineHarness]

PIPELINE = """
    pipeline: shop
    streams:
      orders:
        source: {files: {path: "${input}", format: jsonl}}
        timestamp: {field: ts, unit: ms}
        id: order
        watermark: {max_delay: 10s}
      returns:
        source: {injection: {}}
        timestamp: at
        schema: "shop:Return"
    computations:
      accounts:
        input: {orders: {key: customer}, returns: {key: customer}}
        callback: shop:Accounts
        output: reminders
      minutes:
        input: {orders: {key: shop}}
        window: {tumbling: 1m}
        aggregate: {orders: count, worth: {sum: worth}}
        allowed_lateness: 1m
        output: by_minute
    sinks:
      by_minute: {files: {path: "${output}/by_minute"}}
"""
CODE = """
    import msgspec
    from millwheel import Computation, Domain, ListState, MapState, ValueState

    class Return(msgspec.Struct):
        customer: str
        worth: int
        at: int

    class Account(msgspec.Struct):
        worth: int = 0

    class Accounts(Computation):
        account = ValueState(Account, default=Account)
        seen = ListState(str)
        by_shop = MapState(int)

        def process_record(self, ctx, record):
            if record.stream == "returns":
                self.account.get().worth -= record.value.worth
                return
            order = record.value
            if order["worth"] < 0:
                raise ValueError("worth is negative")
            self.account.get().worth += order["worth"]
            self.seen.append(order["order"])
            self.by_shop[order["shop"]] = self.by_shop.get(order["shop"], 0) + 1
            ctx.set_timer("quiet", record.timestamp + 3_600_000_000)
            ctx.set_timer("nudge", ctx.now + 60_000_000, Domain.PROCESSING)

        def process_timer(self, ctx, timer):
            ctx.produce("reminders", {"customer": ctx.key, "tag": timer.tag, "now": ctx.now})
"""


def order(
    number: int, customer: str = "ann", worth: int = 5, at: int = 0, shop: str = "north"
) -> dict[str, Any]:
    return {"order": f"o{number}", "customer": customer, "worth": worth, "ts": at, "shop": shop}


def test_a_schema_is_what_callbacks_get_and_what_does_not_fit_is_a_dead_letter(make: Make) -> None:
    harness = make()
    harness.push("returns", {"customer": "ann", "worth": 3, "at": 0})
    harness.push("returns", {"customer": "ann", "worth": "three", "at": 0})
    assert harness.state("accounts", "ann")["account"].worth == -3
    [letter] = harness.take("dead_letters")
    assert "Expected `int`, got `str`" in letter["reason"]
    assert harness.read("returns") == [{"customer": "ann", "worth": 3, "at": 0}]


def test_a_record_counts_once_also_when_a_crash_follows_the_end_of_the_input(make: Make) -> None:
    """The end makes a bounded source of one that was not. Its partitions stay where they were."""
    harness = make()
    for number, partition in enumerate("abcdef"):
        harness.push("orders", order(number), key=partition)
    harness.finish()
    harness.crash()
    assert harness.counters["records_in"] == 6


def test_windows_close_when_the_watermark_says_so_and_not_before(make: Make) -> None:
    harness = make()
    harness.push("orders", [order(1), order(2, at=59_999), order(3, at=60_000)])
    harness.advance_watermark(60 * S - 1)
    assert harness.take("by_minute") == []
    harness.advance_watermark(60 * S)
    [first] = harness.take("by_minute")
    assert (first["window_start"], first["orders"], first["worth"]) == (0, 2, 10)
    assert harness.take("by_minute") == []
    assert len(harness.read("by_minute")) == 1
    assert [tuple(w) for w in harness.open_windows("minutes", "north")] == [
        (0, 60 * S),
        (60 * S, 120 * S),
    ]


def test_a_record_behind_the_watermark_is_late_for_those_who_do_not_want_it(make: Make) -> None:
    harness = make()
    harness.advance_watermark(60 * S, "orders")
    harness.push("orders", order(1, at=59_999))
    assert harness.state("accounts", "ann")["seen"] == []
    assert harness.counters["late"] == 1
    harness.finish()
    assert [row["orders"] for row in harness.read("by_minute")] == [1], (
        "minutes allows a minute of lateness"
    )
    assert len(harness.read("orders")) == 1


def test_without_a_watermark_nothing_is_late(make: Make) -> None:
    harness = make()
    harness.push("orders", order(1, at=3_600_000))
    harness.push("orders", order(2, at=0))
    assert harness.state("accounts", "ann")["seen"] == ["o1", "o2"]


def test_timers_fire_as_event_time_and_the_clock_pass_them(make: Make) -> None:
    harness = make()
    harness.push("orders", order(1))
    assert harness.timers("accounts", "ann") == [
        (Domain.PROCESSING, "nudge", 60 * S),
        (Domain.EVENT, "quiet", 3600 * S),
    ]
    harness.advance_processing_time(60 * S)
    assert harness.take("reminders") == []
    harness.advance_processing_time(3600 * S)
    assert harness.take("reminders") == [{"customer": "ann", "tag": "nudge", "now": 60 * S + 1}]
    harness.advance_watermark(3600 * S + 1)
    assert [row["tag"] for row in harness.take("reminders")] == ["quiet"]
    assert harness.timers("accounts", "ann") == []


def test_the_end_of_input_closes_windows_and_fires_timers(make: Make) -> None:
    harness = make()
    harness.push("orders", order(1))
    harness.finish()
    assert [row["orders"] for row in harness.read("by_minute")] == [1]
    assert sorted(row["tag"] for row in harness.read("reminders")) == ["nudge", "quiet"]
    assert harness.watermark("accounts") == 2**63 - 1


def test_a_callback_that_fails_sends_its_record_to_the_dead_letters(make: Make) -> None:
    harness = make()
    harness.push("orders", [order(1), order(2, worth=-1), order(3)])
    [letter] = harness.take("dead_letters")
    assert (letter["computation"], letter["key"], letter["value"]["order"]) == (
        "accounts",
        "ann",
        "o2",
    )
    assert harness.state("accounts", "ann")["seen"] == ["o1", "o3"]
    assert harness.counters_of("accounts")["dead_letters"] == 1


def _of_keys(folder: Path, trigger: str) -> Path:
    (folder / "p.yaml").write_text(
        "pipeline: p\nstreams: {s: {source: {files: {path: '*.csv', format: csv}},"
        " timestamp: t}}\ncomputations: {c: {input: [s], window: {tumbling: 10us}, trigger:"
        f" {trigger}, aggregate: {{n: count}}, output: out}}}}\n"
    )
    return folder / "p.yaml"


def test_a_percentile_watermark_does_not_wait_for_the_slowest(tmp_path: Path) -> None:
    with PipelineHarness(
        _of_keys(tmp_path, "{repeat: {after_percentile_watermark: 0.5}}"), shards=4
    ) as harness:
        ahead = [f"{n}.csv" for n in range(40)]
        for name in ahead:
            harness.push("s", {"t": 1}, key=name)
        slow = harness._cluster.shard_of("source.s", key_hash("pushed")).identity.shard
        for name in ahead:
            if harness._cluster.shard_of("source.s", key_hash(name)).identity.shard != slow:
                harness.advance_watermark(10, "s", name)
        assert harness.watermark("c") < 10
        assert len(harness.read("out")) == len(ahead), "three of four shards have passed the end"


def test_the_far_future_is_judged_only_by_a_clock_that_was_set(make: Make) -> None:
    years = 40 * 365 * 86_400 * 1000
    loose, strict = make(), make(now=0)
    for harness in (loose, strict):
        harness.push("orders", order(1, at=years))
    assert loose.read("dead_letters") == []
    assert "in the future" in strict.read("dead_letters")[0]["reason"]


def test_parameters_that_a_computation_needs_must_be_given(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "pipeline: p\nstreams: {s: {source: {files: {path: '${input}', format: csv}}, timestamp:"
        " t}}\ncomputations: {c: {input: [s], window: {tumbling: '${size}'}, aggregate: {n: count},"
        " output: out}}\n"
    )
    with pytest.raises(PipelineError, match=r"\$\{size\} has no value"):
        PipelineHarness(tmp_path / "p.yaml")
    PipelineHarness(tmp_path / "p.yaml", params={"size": "10s"}).close()


def test_what_is_no_pipeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no pipeline file"):
        PipelineHarness(tmp_path / "nothing.yaml")
    with pytest.raises(PipelineError, match="int is not a pipeline"):
        PipelineHarness(5)


# inspection.py: What a test can see of a running pipeline.


def test_state_is_what_the_callbacks_left(make: Make) -> None:
    harness = make()
    harness.push("orders", [order(1), order(2, worth=7, shop="south"), order(3, "bob")])
    state = harness.state("accounts", "ann")
    assert (state["account"].worth, state["seen"], state["by_shop"]) == (
        12,
        ["o1", "o2"],
        {"north": 1, "south": 1},
    )
    assert harness.state("accounts", "nobody")["seen"] == []
