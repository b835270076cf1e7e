"""Traced records through a shard."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millwheel import Computation
from millwheel.core.formats.codec import encode_batch
from millwheel.core.model.keys import key_hash
from millwheel.core.model.records import Batch
from millwheel.core.tracing import TraceContext
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.operators.windows.grouping import GroupedOperator
from millwheel.engine.workers.operators.windows.rows import WindowedOperator
from millwheel.engine.workers.ports import WorkerPorts
from millwheel.engine.workers.tracing import traced_bundle
from millwheel.engine.workers.tracing import tracing as module
from millwheel.engine.workers.tracing.table import Arrived
from millwheel.engine.workers.tracing.tracing import ShardTracing, Tracing, injected_channel
from millwheel.testing import PipelineHarness
from millwheel.tools.testing.memory import worker
from tests.unit.engine.workers.bench import ShardBench
from tests.unit.engine.workers.tracing.fakes import CONTEXT, OTHER, TRACE, KeptSpans, tracing


class Twice(Computation):
    """Two productions of each record; of "bad" none."""

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.produce("out", record.value)
        if record.value == "bad":
            raise ValueError("bad")
        ctx.produce("out", record.value)


class TwiceTogether(Computation):
    """The same for the records of a key together."""

    def process_batch(self, ctx: Any, records: Any) -> None:
        for record in records:
            ctx.produce("out", record.value, timestamp=record.timestamp)
            ctx.produce("out", record.value, timestamp=record.timestamp)


def bench(
    spans: KeptSpans, kind: type[Computation] = Twice, **more: Any
) -> tuple[ShardBench, Tracing]:
    made, kept = ShardBench(kind), tracing(spans, **more)
    made.shard.trace(kept, is_source=False)
    return made, kept


def traced_numbers(kept: Tracing, sends: list[Any]) -> dict[int, TraceContext]:
    found = {}
    for send in sends:
        for index, arrived in kept.table.found(send.channel, send.batch):
            found[send.batch.seqs[index]] = arrived.context
    return found


def test_a_traced_record_has_a_span_until_its_commit_is_durable_and_so_do_productions() -> None:
    spans = KeptSpans()
    made, kept = bench(spans)
    kept.table.put("up", 2, Arrived(CONTEXT))
    made.deliver(("a", 1, 10), ("b", 2, 20), ("c", 3, 30))
    made.run()
    [span] = spans.all
    assert (span.name, span.parent, span.ended_us) == ("work process", CONTEXT.parent, 0)
    [commit] = made.settle()
    assert span.ended_us > span.began_us
    assert span.facts == {
        "millwheel.computation": "work",
        "millwheel.shard": "work-0",
        "millwheel.worker": "worker-0",
        "millwheel.lease_token": 1,
        "millwheel.stream": "events",
        "millwheel.event_time_us": 20,
        "millwheel.key_hash": f"{key_hash('b'):016x}",
        "millwheel.bundle": 1,
        "millwheel.bundle_records": 3,
        "millwheel.commit": commit.number,
    }
    assert traced_numbers(kept, made.sends()) == {3: span.context, 4: span.context}


def test_a_traced_record_among_those_of_its_key_knows_its_productions() -> None:
    spans = KeptSpans()
    made, kept = bench(spans, TwiceTogether)
    kept.table.put("up", 2, Arrived(CONTEXT))
    made.deliver(("a", 1, 10), ("a", 2, 20), ("a", 3, 30))
    made.run()
    made.settle()
    [span] = spans.all
    assert traced_numbers(kept, made.sends()) == {3: span.context, 4: span.context}


def test_a_key_is_shown_only_where_the_pipeline_says_so() -> None:
    spans = KeptSpans()
    made, kept = bench(spans, keys=True)
    kept.table.put("up", 1, Arrived(CONTEXT))
    made.deliver(("secret", 1, 10))
    made.through()
    assert spans.all[0].facts["millwheel.key"] == "'secret'"


def test_a_record_that_fails_has_a_failed_span_and_its_neighbours_keep_theirs() -> None:
    spans = KeptSpans()
    made, kept = bench(spans)
    for number in (1, 2, 3):
        kept.table.put("up", number, Arrived(TraceContext(f"00-{number:032x}-{'c' * 16}-01")))
    made.deliver(("a", 1, 10), ("b", "bad", 20), ("c", 3, 30))
    made.run()
    made.settle()
    sends = made.sends()
    assert [bool(span.error) for span in spans.all] == [False, True, False]
    by_number = traced_numbers(kept, sends)
    first, failed, last = (span.context for span in spans.all)
    assert [context for _, context in sorted(by_number.items())] == [
        first,
        first,
        last,
        last,
        failed,
    ]
    assert sum(len(send.batch) for send in sends) == 5


def test_a_new_owner_works_on_the_record_again_in_the_same_trace_and_says_so() -> None:
    spans = KeptSpans()
    made, kept = bench(spans)
    kept.table.put("up", 1, Arrived(CONTEXT))
    made.deliver(("a", 1, 10))
    made.run()
    made.crash()  # before the journal has it: that span is never sent
    made.shard.trace(kept, is_source=False)
    made.deliver(("a", 1, 10))
    made.through()
    lost, done = spans.all
    assert not lost.ended_us
    assert done.ended_us
    assert lost.context.trace_id == done.context.trace_id == CONTEXT.trace_id
    assert (done.facts["millwheel.lease_token"], done.facts["millwheel.recovered"]) == (2, True)
    assert "millwheel.recovered" not in lost.facts
    made.deliver(("a", 1, 10))  # sent once more: a copy is not a work
    made.through()
    assert len(spans.all) == 2


def test_a_hop_between_workers_is_a_span_between_its_ends() -> None:
    spans = KeptSpans()
    made, kept = bench(spans)
    kept.table.put("up", 1, Arrived(CONTEXT, "worker-7", 100, 200))
    made.deliver(("a", 1, 10))
    made.through()
    hop, span = spans.all
    assert (hop.name, hop.parent, hop.began_us, hop.ended_us) == (
        "work deliver",
        CONTEXT.parent,
        100,
        200,
    )
    assert hop.facts["millwheel.sender"] == "worker-7"
    assert span.parent == hop.context.parent


def test_no_code_of_spans_is_entered_for_a_bundle_without_a_traced_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def entered(*_: Any, **__: Any) -> Any:
        raise AssertionError("a record was looked at")

    for name in ("watched", "numbered", "durable", "rows", "publish"):
        monkeypatch.setattr(traced_bundle.TracedBundle, name, entered)
    spans = KeptSpans()
    made, kept = bench(spans)
    kept.table.put("elsewhere", 1, Arrived(CONTEXT))
    made.deliver(("a", 1, 10), ("b", 2, 20))
    made.through()
    assert spans.all == []
    monkeypatch.setattr(ShardTracing, "bundle", entered)
    plain = ShardBench(Twice)  # a pipeline without tracing does not even ask
    plain.deliver(("a", 1, 10))
    assert plain.through() == [1, 1]


def test_what_is_written_and_sent_is_the_same_with_traces_and_without() -> None:
    results = []
    for is_traced in (False, True):
        made, kept = ShardBench(Twice), tracing(KeptSpans())
        if is_traced:
            made.shard.trace(kept, is_source=False)
        sent: list[Any] = []
        for first in (1, 5):
            for number in range(first, first + 4):
                kept.table.put("up", number, Arrived(CONTEXT))
            made.deliver(
                *((f"k{n}", "bad" if n == 6 else n, n) for n in range(first, first + 4)),
                first=first,
            )
            made.run()
            made.settle()
            sends = made.sends()
            sent += [encode_batch(send.batch) for send in sends]
            made.ack(*sends)
        results.append((made.journal, sent))
    assert results[0] == results[1]


def test_one_bundle_has_a_bounded_number_of_spans_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    spans = KeptSpans()
    made, kept = bench(spans)
    for number in range(1, 6):
        kept.table.put("up", number, Arrived(CONTEXT))
    made.deliver(*((f"k{n}", n, n) for n in range(5)))
    made.through()
    assert (len(spans.all), kept.left_out) == (2, [3])


# --- where traces begin ---------------------------------------------------------------------------


def injected(kept: Tracing, stream: str, *ids: str) -> Iterator[str]:
    batch = Batch(stream, [], [1] * len(ids), list(ids), [b"{}"] * len(ids), list(ids))
    for index, _ in kept.table.found(injected_channel(stream), batch):
        yield ids[index]


def test_an_injected_record_is_traced_if_its_sender_asks_for_spans() -> None:
    kept = tracing(KeptSpans())
    unsampled = f"00-{OTHER}-{'d' * 16}-00"
    kept.injected("hits", ["a", "b", "c", "d"], [CONTEXT.parent, unsampled, "", "nonsense"])
    assert list(injected(kept, "hits", "a", "b", "c", "d")) == ["a"]
    assert list(injected(kept, "other", "a")) == []
    kept.injected("hits", ["e"], [f"{CONTEXT.parent}\n{CONTEXT.state}"])
    batch = Batch("hits", [], [1], ["e"], [b"{}"], ["e"])
    assert kept.table.found(injected_channel("hits"), batch) == [(0, Arrived(CONTEXT))]


def test_records_without_a_header_are_sampled_by_their_ids_and_one_that_declines_is_not() -> None:
    kept = tracing(KeptSpans(), sample=1.0)
    kept.injected("hits", ["a", "b"], ["", f"00-{OTHER}-{'d' * 16}-00"])
    assert list(injected(kept, "hits", "a", "b")) == ["a"]
    none = tracing(KeptSpans(begins_traces=False), sample=1.0)
    none.injected("hits", ["a"], [])
    assert list(injected(none, "hits", "a")) == [], "without a collector no trace begins"


def source(kept: Tracing, token: int = 1) -> ShardTracing:
    return ShardTracing(kept, "source.hits", "source.hits-0", token, key_hash, is_source=True)  # type: ignore[arg-type]


def test_a_read_record_has_a_span_and_its_consumers_find_its_context() -> None:
    spans = KeptSpans()
    kept = tracing(spans)
    batch = Batch("hits", [5, 6], [10, 20], ["a", "b"], [1, 2])
    contexts = {
        6: CONTEXT,
        7: TraceContext(f"00-{OTHER}-{'d' * 16}-01"),
        5: TraceContext(f"00-{OTHER}-{'d' * 16}-00"),
    }
    source(kept).read("source.hits/t/0", [5, 6, 7], contexts, [("work", batch)])  # type: ignore[list-item]
    read, dropped = spans.all
    assert (read.name, read.parent, read.ended_us > 0) == ("source.hits read", CONTEXT.parent, True)
    assert (read.facts["millwheel.partition"], read.facts["millwheel.position"]) == ("t/0", 6)
    assert read.facts["millwheel.key_hash"] == f"{key_hash('b'):016x}"
    assert dropped.facts["millwheel.dropped"] is True, "the record with position 7 was late, say"
    assert kept.table.found("source.hits/t/0", batch) == [(1, Arrived(read.context))]


def test_a_source_samples_what_came_without_a_header_and_again_the_same_after_a_crash() -> None:
    traces = []
    for token in (1, 2):
        spans = KeptSpans()
        batch = Batch("hits", [1, 2], [10, 20], ["a", "b"], [1, 2])
        context = TraceContext(f"00-{TRACE}-{'d' * 16}-00")
        source(tracing(spans, sample=1.0), token).read("c", [1, 2], {1: context}, [("work", batch)])  # type: ignore[list-item]
        [span] = spans.all
        assert span.facts["millwheel.position"] == 2
        assert span.facts.get("millwheel.recovered", False) is (token == 2)
        traces.append(span.context.trace_id)
    assert traces[0] == traces[1]


# --- from end to end, in one process --------------------------------------------------------------


PIPELINE = """
pipeline: p
streams:
  given:
    source: {injection: {}}
    timestamp: {field: t, unit: us}
    watermark: {max_future: never, max_delay: 3650d, idle_after: 5s}
computations:
  work: {input: {given: {key: k}}, map: {k: k}, output: out}
sinks:
  out: {stdout: {}}
"""


def test_an_injected_record_leaves_a_tree_from_its_source_to_its_sink_and_copies_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    spans, answers = KeptSpans(), []
    monkeypatch.setattr(worker, "WorkerPorts", partial(WorkerPorts, tracing=tracing(spans)))
    harness = PipelineHarness(
        tmp_path / "p.yaml", run_sources=True, workers=1, now=3_600_000_000_000
    )
    cluster = harness._cluster
    entry = cluster._tables["source.given"].shards[0]
    for _ in range(2):
        records = [b'{"t": 1, "k": "a"}', b'{"t": 1, "k": "b"}', b"no record"]
        traces = ["", CONTEXT.parent, f"00-{OTHER}-{'d' * 16}-01"]
        event = ev.Injected(
            "given",
            entry.shard,
            records,
            ["1", "2", "3"],
            lambda *told: answers.append(told),
            traces,
        )
        cluster.worker(entry.owner).post(event)
        cluster.settle()
        harness.advance_processing_time(harness.now + 10_000_000)
    assert [told[1:] for told in answers] == [(2, 0, 1), (0, 3, 0)]
    way = [span for span in spans.all if span.context.trace_id == int(TRACE, 16)]
    names = ["source.given process", "work process", "sink.out process", "sink.out publish"]
    assert [span.name for span in way] == names
    assert [span.parent for span in way] == [
        CONTEXT.parent,
        *(span.context.parent for span in way[:-1]),
    ]
    assert all(span.ended_us for span in spans.all)
    [first, *rest] = [span for span in spans.all if span.context.trace_id == int(OTHER, 16)]
    assert first.name == "source.given process"
    assert all("dead" in span.name or "sink" in span.name for span in rest)


WINDOWS = """
pipeline: p
streams:
  hits:
    source: {files: {path: "PATH", format: jsonl}}
    timestamp: {field: t, unit: us}
    fields: {k: str, t: int}
computations:
  count: {input: {hits: {key: k}}, window: {tumbling: 1s}, aggregate: {n: count}, output: counts}
sinks:
  counts: {stdout: {}}
"""


def counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kept: Tracing | None, crash_every: int = 0
) -> list[Any]:
    (folder / "hits.jsonl").write_text(
        "".join(f'{{"k": "k{n % 3}", "t": {n * 10_000}}}\n' for n in range(300))
    )
    (folder / "p.yaml").write_text(WINDOWS.replace("PATH", str(folder / "hits.jsonl")))
    with monkeypatch.context() as patched:
        patched.setattr(worker, "WorkerPorts", partial(WorkerPorts, tracing=kept))
        with PipelineHarness(
            folder / "p.yaml",
            run_sources=True,
            workers=1,
            shards=1,
            crash_every=crash_every or None,
        ) as harness:
            harness.advance_processing_time(harness.now + 10_000_000)
            return sorted(harness.read("counts"), key=str)


def test_a_bundle_in_columns_stays_in_columns_and_its_traces_end_in_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = counted(tmp_path, monkeypatch, None)
    assert sum(row["n"] for row in plain) == 300
    spans = KeptSpans()
    with monkeypatch.context() as patched:
        patched.setattr(GroupedOperator, "run", lambda *_: pytest.fail("it went by rows"))
        patched.setattr(WindowedOperator, "run", lambda *_: pytest.fail("it went by rows"))
        assert counted(tmp_path, monkeypatch, tracing(spans, sample=0.1)) == plain
    reads = [span for span in spans.all if span.name == "source.hits read"]
    assert 10 < len(reads) < 60
    assert {span.name for span in spans.all} == {"source.hits read", "count process"}
    by_context = {span.context.parent: span for span in reads}
    processed = [span for span in spans.all if span.name == "count process"]
    assert len(processed) == len(reads)
    for span in processed:
        above = by_context[span.parent]
        assert span.facts["millwheel.event_time_us"] == above.facts["millwheel.event_time_us"]
        assert span.facts["millwheel.key_hash"] == above.facts["millwheel.key_hash"]
        assert span.ended_us


def test_crashes_change_no_result_and_a_record_that_is_read_again_has_its_trace_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = counted(tmp_path, monkeypatch, None)
    spans = KeptSpans()
    assert counted(tmp_path, monkeypatch, tracing(spans, sample=0.1), crash_every=5) == plain
    reads: dict[Any, set[int]] = {}
    for span in spans.all:
        if span.name == "source.hits read":
            reads.setdefault(span.facts["millwheel.position"], set()).add(span.context.trace_id)
    assert all(len(traces) == 1 for traces in reads.values())
    again = [span for span in spans.all if span.facts.get("millwheel.recovered")]
    assert again
    assert all(int(span.facts["millwheel.lease_token"]) > 1 for span in again)
