"""Which productions come of which record, and when their spans end."""

from __future__ import annotations

import msgspec

from millwheel.core.model.records import Batch
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.core.tracing import SpanKind
from millwheel.engine.workers.bundle.bundle import Outputs
from millwheel.engine.workers.tracing.table import Arrived, TraceTable
from millwheel.engine.workers.tracing.traced_bundle import TracedBundle, TracedRecord
from tests.unit.engine.workers.tracing.fakes import CONTEXT, KeptSpan, KeptSpans

SPANS = KeptSpans()


def span() -> KeptSpan:
    return SPANS.begin("work process", SpanKind.INTERNAL, CONTEXT, 1, {})


def bundle(*records: TracedRecord) -> TracedBundle:
    def begin(name: str, kind: SpanKind, parent: object, at_us: int) -> KeptSpan:
        return SPANS.begin(name, kind, parent, at_us, {})  # type: ignore[arg-type]

    return TracedBundle(TraceTable(), "work-0", lambda: 50, begin, lambda *_: None, list(records))


def test_productions_come_from_the_record_in_whose_call_they_were_made() -> None:
    mine, outputs = span(), Outputs()
    traced = bundle(TracedRecord(0, 1, mine))

    values = [2, 3, 1]
    for value in traced.watched(values, 0, outputs.lengths):
        for _ in range(value):
            outputs.produce("out", "k", value, 1)
    traced.numbered("out", Batch("out", [10, 11, 12, 13, 14, 15], [1] * 6, ["k"] * 6, [1] * 6))
    batch = Batch("out", list(range(10, 16)), [1] * 6, ["k"] * 6, [1] * 6)
    assert traced.table.found("work-0", batch) == [
        (index, Arrived(mine.context)) for index in (2, 3, 4)
    ]
    assert not mine.error


def test_the_rows_of_an_arrival_are_the_same_whichever_of_them_are_traced() -> None:
    for indexes in ([0], [4], [0, 1], [1, 3], [0, 1, 2, 3, 4]):
        traced = bundle(*(TracedRecord(1, index, span()) for index in reversed(indexes)))
        outputs, rows = Outputs(), list(range(5))
        for row in traced.watched(iter(rows), 1, outputs.lengths):
            outputs.produce("out", "k", row, 1)
        assert [msgspec.msgpack.decode(raw) for raw in outputs.streams["out"].raws] == rows
        assert sorted(traced.made["out"]) == indexes
        assert traced.watched(rows, 0, outputs.lengths) is rows, "nothing is traced there"


def test_a_record_that_becomes_a_dead_letter_has_failed() -> None:
    mine, outputs = span(), Outputs()
    traced = bundle(TracedRecord(0, 0, mine))
    for _ in traced.watched([1], 0, outputs.lengths):
        outputs.produce(DEAD_LETTERS, "work", {}, 1)
    assert mine.error == "it became a dead letter"


def test_what_is_taken_back_has_no_trace() -> None:
    mine, outputs = span(), Outputs()
    traced = bundle(TracedRecord(0, 0, mine))
    for forget in (traced.forget_made, lambda: traced.leave_out("out")):
        for _ in traced.watched([1], 0, outputs.lengths):
            outputs.produce("out", "k", 1, 1)
        forget()
        traced.numbered("out", Batch("out", [1, 2], [1, 1], ["k", "k"], [1, 1]))
    assert traced.table.found("work-0", Batch("out", [1, 2], [1, 1], ["k", "k"], [1, 1])) == []


def test_weak_productions_are_known_by_their_ids_and_those_without_not_at_all() -> None:
    mine = span()
    traced = bundle(TracedRecord(0, 0, mine))
    traced.credit(mine, {}, {"out": 1})
    traced.numbered("out", Batch("out", [], [1], ["k"], [1]))
    weak = Batch("out", [], [1], ["k"], [1], [b"id"])
    traced.numbered("out", weak)
    assert traced.table.found("work-0", weak) == [(0, Arrived(mine.context))]


def test_rows_of_a_sink_are_counted_over_all_arrivals() -> None:
    first, second = span(), span()
    traced = bundle(TracedRecord(0, 1, first), TracedRecord(2, 0, second))
    assert traced.rows([2, 3, 4]) == {1: first.context, 5: second.context}


def test_each_attempt_to_publish_has_a_span_below_that_of_the_record() -> None:
    mine = span()
    traced = bundle(TracedRecord(0, 0, mine))
    begun = len(SPANS.all)
    traced.publish(3)
    traced.publish(3)  # asked twice is one attempt
    traced.published("away")
    traced.publish(3)
    traced.published()
    tries = SPANS.all[begun:]
    assert [(each.parent, each.facts["millwheel.batch"], each.error) for each in tries] == [
        (mine.context.parent, 3, "away"),
        (mine.context.parent, 3, ""),
    ]
    assert all(each.ended_us == 50 for each in tries)
    assert not mine.ended_us
    traced.durable(9)
    assert (mine.ended_us, mine.facts["millwheel.commit"]) == (50, 9)
