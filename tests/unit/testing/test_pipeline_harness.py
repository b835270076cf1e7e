"""A pipeline in memory: what is pushed goes the real way, and every look at it is right."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millwheel.core.model.keys import key_hash
from millwheel.core.model.records import Domain
from millwheel.errors import MillwheelError, PipelineError
from millwheel.spec import load_pipeline
from millwheel.testing import PipelineHarness, assert_survives_crashes

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


@pytest.fixture
def make(tmp_path: Path) -> Any:
    (tmp_path / "pipeline.yaml").write_text(textwrap.dedent(PIPELINE))
    (tmp_path / "shop.py").write_text(textwrap.dedent(CODE))
    made: list[PipelineHarness] = []

    def make(**options: Any) -> PipelineHarness:
        made.append(PipelineHarness(tmp_path / "pipeline.yaml", **options))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


def order(number: int, customer: str = "ann", worth: int = 5, at: int = 0, shop: str = "north") -> dict[str, Any]:
    return {"order": f"o{number}", "customer": customer, "worth": worth, "ts": at, "shop": shop}


def test_state_is_what_the_callbacks_left(make: Make) -> None:
    harness = make()
    harness.push("orders", [order(1), order(2, worth=7, shop="south"), order(3, "bob")])
    state = harness.state("accounts", "ann")
    assert (state["account"].worth, state["seen"], state["by_shop"]) == (12, ["o1", "o2"], {"north": 1, "south": 1})
    assert harness.state("accounts", "nobody")["seen"] == []


def test_every_shard_and_both_workers_take_part(make: Make) -> None:
    harness = make(shards=4)
    harness.push("orders", [order(n, f"c{n}") for n in range(50)])
    assert sum(harness.state("accounts", f"c{n}")["account"].worth for n in range(50)) == 250
    served = {s.identity.shard for s in harness._cluster.shards_of("accounts") if s.made_number}
    assert len(served) == 4


def test_a_schema_is_what_callbacks_get_and_what_does_not_fit_is_a_dead_letter(make: Make) -> None:
    harness = make()
    harness.push("returns", {"customer": "ann", "worth": 3, "at": 0})
    harness.push("returns", {"customer": "ann", "worth": "three", "at": 0})
    assert harness.state("accounts", "ann")["account"].worth == -3
    [letter] = harness.take("dead_letters")
    assert "Expected `int`, got `str`" in letter["reason"]
    assert harness.read("returns") == [{"customer": "ann", "worth": 3, "at": 0}]


def test_a_timestamp_is_written_where_the_stream_looks_for_it_in_its_unit(make: Make) -> None:
    harness = make()
    record = order(1)
    del record["ts"]
    harness.push("orders", record, timestamp=90 * S)
    assert [(r.timestamp, r.value["ts"]) for r in harness.records("orders")] == [(90 * S, 90_000)]
    assert "ts" not in record


def test_copies_count_once(make: Make) -> None:
    harness = make()
    harness.push("orders", [order(1), order(1), order(2)])
    harness.push("orders", order(1))
    assert harness.state("accounts", "ann")["account"].worth == 10
    assert harness.counters["duplicates"] == 2
    assert harness.counters["records_in"] == 4


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
    assert [tuple(w) for w in harness.open_windows("minutes", "north")] == [(0, 60 * S), (60 * S, 120 * S)]


def test_a_record_behind_the_watermark_is_late_for_those_who_do_not_want_it(make: Make) -> None:
    harness = make()
    harness.advance_watermark(60 * S, "orders")
    harness.push("orders", order(1, at=59_999))
    assert harness.state("accounts", "ann")["seen"] == []
    assert harness.counters["late"] == 1
    harness.finish()
    assert [row["orders"] for row in harness.read("by_minute")] == [1], "minutes allows a minute of lateness"
    assert len(harness.read("orders")) == 1


def test_without_a_watermark_nothing_is_late(make: Make) -> None:
    harness = make()
    harness.push("orders", order(1, at=3_600_000))
    harness.push("orders", order(2, at=0))
    assert harness.state("accounts", "ann")["seen"] == ["o1", "o2"]


def test_streams_have_watermarks_of_their_own(make: Make) -> None:
    harness = make()
    harness.advance_watermark(100 * S, "orders")
    assert (harness.watermark("minutes"), harness.watermark("accounts")) == (100 * S, -(2**63))
    harness.advance_watermark(70 * S, "returns")
    assert harness.watermark("accounts") == 70 * S


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
    assert (letter["computation"], letter["key"], letter["value"]["order"]) == ("accounts", "ann", "o2")
    assert harness.state("accounts", "ann")["seen"] == ["o1", "o3"]
    assert harness.counters_of("accounts")["dead_letters"] == 1


def test_a_record_changed_after_it_was_pushed_or_by_a_callback_stays_what_it_was(make: Make) -> None:
    harness = make()
    record = order(1)
    harness.push("orders", record)
    record["worth"] = 1000
    harness.crash()
    assert harness.read("orders") == [order(1)]
    harness.read("orders")[0]["worth"] = 7
    harness.push("orders", order(2))
    assert harness.state("accounts", "ann")["account"].worth == 10


@pytest.mark.parametrize("crash_every", [1, 13, 60])
def test_crashes_change_nothing(make: Make, crash_every: int) -> None:
    calm, rough = make(), make(crash_every=crash_every)
    for harness in (calm, rough):
        for n in range(8):
            harness.push("orders", [order(2 * n, at=n * 20_000), order(2 * n + 1, "bob", at=n * 20_000)])
            harness.advance_watermark(n * 20 * S)
        harness.crash()
        harness.push("orders", [order(1), order(99, worth=-4)])
        harness.finish()
    assert rough.crashes > calm.crashes == 1
    for stream in ("orders", "by_minute", "reminders", "dead_letters"):
        plain = [msgspec.json.encode(value) for value in calm.read(stream)]
        assert sorted(plain) == sorted(msgspec.json.encode(value) for value in rough.read(stream)), stream
    assert calm.remembered() == rough.remembered()
    assert calm.counters == rough.counters


def test_timers_of_both_clocks_fire_once_and_at_the_same_times_wherever_it_crashes(tmp_path: Path, make: Make) -> None:
    make()

    def story(harness: PipelineHarness) -> None:
        for n in range(3):
            harness.push("orders", [order(2 * n, at=n * 20_000), order(2 * n + 1, "bob", at=n * 20_000)])
            harness.advance_processing_time(n * 40 * S)
            harness.advance_watermark(n * 20 * S)
        harness.finish()

    assert_survives_crashes(tmp_path / "pipeline.yaml", story, every=7)


def test_a_crash_recovers_from_snapshots_and_from_journals(make: Make) -> None:
    harness = make()
    for n in range(120):
        harness.push("orders", order(n, f"c{n % 5}", at=n))
    storage = harness._cluster.storage
    snapshots = storage.snapshots()
    assert any(snapshots.latest(f"accounts-{i}") is not None for i in (0, 1)), "some shard grew large enough"
    before = harness.remembered()
    harness.crash()
    assert harness.remembered() == before
    harness.crash()
    assert harness.remembered() == before


def test_what_was_not_synced_is_gone_and_is_done_again(make: Make) -> None:
    harness = make()
    for shard in harness._cluster.shards_of("source.orders"):
        shard.operator.look(0)  # type: ignore[attr-defined]
    harness._pushed["orders"].push([order(1)])
    harness._cluster.do_later(lambda: None)
    harness.crash()
    assert harness.state("accounts", "ann")["seen"] == ["o1"]


def test_a_key_of_its_own_is_the_name_of_where_records_come_from(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "pipeline: p\nstreams: {s: {source: {files: {path: '*.csv', format: csv}}, timestamp: t}}\n"
        "computations: {c: {input: [s], window: global, aggregate: {n: count}, output: out}}\n"
    )
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        for name in ("a.csv", "b.csv", "c.csv"):
            harness.push("s", [{"t": 1}, {"t": 2}], key=name)
        harness.push("s", {"t": 3})
        harness.finish()
        assert sorted((row["key"], row["n"]) for row in harness.read("out")) == [
            ("a.csv", 2), ("b.csv", 2), ("c.csv", 2), ("pushed", 1),
        ]  # fmt: skip


def _of_keys(folder: Path, trigger: str) -> Path:
    (folder / "p.yaml").write_text(
        "pipeline: p\nstreams: {s: {source: {files: {path: '*.csv', format: csv}}, timestamp: t}}\n"
        f"computations: {{c: {{input: [s], window: {{tumbling: 10us}}, trigger: {trigger}, aggregate: {{n: count}}, "
        "output: out}}\n"
    )
    return folder / "p.yaml"


def test_a_stream_stands_where_the_slowest_of_its_partitions_stands(tmp_path: Path) -> None:
    with PipelineHarness(_of_keys(tmp_path, "default")) as harness:
        harness.push("s", {"t": 1}, key="a.csv")
        harness.push("s", {"t": 2}, key="b.csv")
        harness.advance_watermark(10, "s", "a.csv")
        harness.push("s", {"t": 5}, key="a.csv")
        harness.push("s", {"t": 6}, key="b.csv")
        assert harness.counters["late"] == 1, "a.csv was complete up to 10"
        assert harness.watermark("c") < 10
        with pytest.raises(ValueError, match="that of 's' is 10"):
            harness.advance_watermark(9, "s")
        harness.advance_watermark(10, "s")
        assert sorted((row["key"], row["n"]) for row in harness.read("out")) == [("a.csv", 1), ("b.csv", 2)]


def test_a_percentile_watermark_does_not_wait_for_the_slowest(tmp_path: Path) -> None:
    with PipelineHarness(_of_keys(tmp_path, "{repeat: {after_percentile_watermark: 0.5}}"), shards=4) as harness:
        ahead = [f"{n}.csv" for n in range(40)]
        for name in ahead:
            harness.push("s", {"t": 1}, key=name)
        slow = harness._cluster.shard_of("source.s", key_hash("pushed")).identity.shard
        for name in ahead:
            if harness._cluster.shard_of("source.s", key_hash(name)).identity.shard != slow:
                harness.advance_watermark(10, "s", name)
        assert harness.watermark("c") < 10
        assert len(harness.read("out")) == len(ahead), "three of four shards have passed the end"


def test_the_sources_of_the_file_may_run(tmp_path: Path, make: Make) -> None:
    rows = [order(n, at=10**12 + n * 1000) for n in range(100)]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    with PipelineHarness(_bounded(tmp_path), run_sources=True, crash_every=40) as harness:
        assert sum(row["n"] for row in harness.read("out")) == 100
        assert harness.crashes > 0
        assert harness.read("dead_letters") == []
        with pytest.raises(ValueError, match="give the pipeline a sink"):
            harness.read("orders")
        with pytest.raises(ValueError, match="its own source runs"):
            harness.push("orders", order(1))
        with pytest.raises(ValueError, match="sources of the pipeline move their watermarks"):
            harness.advance_watermark(1)


def _bounded(folder: Path) -> Path:
    (folder / "bounded.yaml").write_text(
        "pipeline: p\nstreams: {orders: {source: {files: {path: in.jsonl, format: jsonl}}, "
        "timestamp: {field: ts, unit: ms}}}\n"
        "computations: {c: {input: {orders: {key: shop}}, window: {tumbling: 10s}, aggregate: {n: count}, "
        "output: out}}\n"
    )
    return folder / "bounded.yaml"


def test_the_far_future_is_judged_only_by_a_clock_that_was_set(make: Make) -> None:
    years = 40 * 365 * 86_400 * 1000
    loose, strict = make(), make(now=0)
    for harness in (loose, strict):
        harness.push("orders", order(1, at=years))
    assert loose.read("dead_letters") == []
    assert "in the future" in strict.read("dead_letters")[0]["reason"]


def test_a_spec_will_do(tmp_path: Path, make: Make) -> None:
    make()
    spec = load_pipeline(str(tmp_path / "pipeline.yaml"), {"input": "x", "output": "y"})
    with PipelineHarness(spec) as harness:
        harness.push("orders", order(1))
        assert harness.state("accounts", "ann")["seen"] == ["o1"]


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda h: h.push("order", {}), ValueError, "unknown stream 'order'; did you mean 'orders'?"),
        (lambda h: h.push("by_minute", {}), ValueError, "the computation 'minutes' produces it"),
        (lambda h: h.push("orders", {}, timestamp="now"), TypeError, "timestamp must be a whole number of µs"),
        (lambda h: h.push("orders", {}, timestamp=True), TypeError, "not True"),
        (lambda h: h.push("orders", {}, timestamp=1), ValueError, "units of 1000 µs"),
        (lambda h: h.push("orders", {"ts": 7}, timestamp=0), ValueError, "says its time itself: ts=7"),
        (lambda h: h.push("orders", 5, timestamp=0), ValueError, "5 has no fields; push a dict"),
        (lambda h: h.push("orders", {}, key=5), TypeError, "names what the records come from"),
        (lambda h: h.advance_watermark(5.0), TypeError, "the watermark must be a whole number"),
        (lambda h: h.advance_watermark(2**63 - 1), ValueError, "end of input is finish"),
        (lambda h: h.advance_watermark(9), ValueError, "never goes back: that of 'orders' is 10"),
        (lambda h: h.advance_watermark(1, "returned"), ValueError, "did you mean 'returns'?"),
        (lambda h: h.advance_processing_time(-1), ValueError, "the clock is at 0 and cannot go back"),
        (lambda h: h.read("by_minutes"), ValueError, "did you mean 'by_minute'?"),
        (lambda h: h.state("account", "ann"), ValueError, "unknown computation 'account'; did you mean 'accounts'?"),
        (lambda h: h.open_windows("accounts", "ann"), ValueError, "has no windows"),
        (lambda h: (h.finish("orders"), h.push("orders", {})), ValueError, "orders was finished"),
        (lambda h: (h.close(), h.read("orders")), MillwheelError, "this harness is closed"),
    ],
)
def test_a_mistake_of_the_test_is_told_in_a_sentence(make: Make, wrong: Any, error: type, words: str) -> None:
    harness = make()
    harness.advance_watermark(10, "orders")
    with pytest.raises(error, match=words.replace("(", r"\(")):
        wrong(harness)


def test_parameters_that_a_computation_needs_must_be_given(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "pipeline: p\nstreams: {s: {source: {files: {path: '${input}', format: csv}}, timestamp: t}}\n"
        "computations: {c: {input: [s], window: {tumbling: '${size}'}, aggregate: {n: count}, output: out}}\n"
    )
    with pytest.raises(PipelineError, match=r"\$\{size\} has no value"):
        PipelineHarness(tmp_path / "p.yaml")
    PipelineHarness(tmp_path / "p.yaml", params={"size": "10s"}).close()


def test_what_is_no_pipeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no pipeline file"):
        PipelineHarness(tmp_path / "nothing.yaml")
    with pytest.raises(PipelineError, match="int is no pipeline"):
        PipelineHarness(5)
