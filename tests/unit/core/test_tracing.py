"""W3C's headers: which are contexts, and which are none."""

from __future__ import annotations

import numpy as np
import pytest

from millwheel.core.tracing import (
    NOT_SAMPLED,
    NoSpans,
    SpanKind,
    TraceContext,
    chosen_numbers,
    context_of,
    declines,
    is_chosen,
    new_trace,
    trace_id,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_header_is_a_context_whether_it_came_as_text_or_bytes() -> None:
    assert (
        context_of(PARENT, "a=1")
        == context_of(PARENT.encode(), b"a=1")
        == TraceContext(PARENT, "a=1")
    )
    assert context_of(f"  {PARENT} ") == TraceContext(PARENT)


def test_only_the_lowest_flag_asks_for_spans() -> None:
    flags = {"00": False, "01": True, "02": False, "03": True}
    for flag, sampled in flags.items():
        context = context_of(f"00-{TRACE}-{SPAN}-{flag}")
        assert context is not None
        assert context.sampled is sampled


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "x",
        f"00-{TRACE}-{SPAN}",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"{PARENT}-more",
        f"{PARENT}\n{PARENT}",
        f"01-{TRACE}-{SPAN}-01-{'x' * 300}",
        b"\xff\xfe",
    ],
)
def test_what_is_no_header_is_no_context(text: str | bytes | None) -> None:
    assert context_of(text) is None


def test_a_context_that_declines_is_told_by_its_end() -> None:
    assert declines(f"00-{TRACE}-{SPAN}-00".encode())
    assert not any(map(declines, (PARENT.encode(), b"", b"x-00", f"00-{TRACE}-{SPAN}-02".encode())))
    assert context_of(NOT_SAMPLED.parent) == NOT_SAMPLED
    assert not NOT_SAMPLED.sampled


def test_a_later_version_may_say_more() -> None:
    text = f"01-{TRACE}-{SPAN}-01-more"
    assert context_of(text) == TraceContext(text)


def test_a_long_state_is_left_out_and_the_trace_goes_on() -> None:
    assert context_of(PARENT, "a=" + "x" * 600) == TraceContext(PARENT)


def test_a_trace_that_begins_has_an_id_and_no_span() -> None:
    context = new_trace(7)
    assert (context.begins, context.sampled, context.trace_id) == (True, True, 7)
    assert not TraceContext(PARENT).begins
    assert context_of(context.parent) is None, "it must not be taken for a header"


# Which records are sampled.

NUMBERS = np.arange(1, 100_001, dtype=np.int64)


def test_about_the_share_is_chosen() -> None:
    assert 800 < len(chosen_numbers(0.01, "c", NUMBERS)) < 1_200
    assert 800 < sum(is_chosen(0.01, "c", f"id{number}") for number in range(100_000)) < 1_200
    assert chosen_numbers(0.0, "c", NUMBERS) == [] == chosen_numbers(0.5, "c", NUMBERS[:0])
    assert chosen_numbers(1.0, "c", NUMBERS[:3]) == [1, 2, 3]
    assert is_chosen(1.0, "c", "a")
    assert not is_chosen(0.0, "c", "a")


def test_the_choice_is_that_of_the_record_however_much_is_read_at_once() -> None:
    whole = chosen_numbers(0.01, "c", NUMBERS)
    parts = [
        number
        for start in range(0, 100_000, 777)
        for number in chosen_numbers(0.01, "c", NUMBERS[start:][:777])
    ]
    assert parts == whole
    assert set(whole) - set(chosen_numbers(0.01, "d", NUMBERS)), (
        "partitions must not choose the same offsets"
    )


def test_a_record_has_the_same_trace_whenever_it_is_read_and_no_other_has() -> None:
    assert trace_id("p", "c", 7) == trace_id("p", "c", 7)
    ids = {trace_id(p, c, n) for p in "pq" for c in "cd" for n in range(100)}
    assert len(ids) == 400
    assert all(0 < each < 1 << 128 for each in ids)


# Contexts where nobody collects spans.

CONTEXT = TraceContext(f"00-{'a' * 32}-{'b' * 16}-01", "v=1")


def test_without_a_collector_a_context_is_passed_on_as_it_came_and_none_begins() -> None:
    spans = NoSpans()
    span = spans.begin("count process", SpanKind.INTERNAL, CONTEXT, 1, {"a": 1})
    span.note("b", 2)
    span.fail("because")
    span.end(3)
    assert span.context == CONTEXT
    assert not spans.begins_traces
