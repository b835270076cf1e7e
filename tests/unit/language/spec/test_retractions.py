"""Streams with retractions end where somebody understands them, or are refused with what to
write."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.keys import KeyKind

WINDOW = (
    "input: {hits: {key: path}}, window: {session: 1m}, aggregate: {n: count}, accumulation:"
    " retracting"
)
SINK = "sinks: {counts: {%s}}\n"


def pipeline(sink: str = "", more: str = "", steps: str = "") -> str:
    stream = "counts: {input: raw, " + steps + ", output: counts}" if steps else ""
    return (
        "pipeline: p\nstreams: {hits: {source: injection, timestamp: ts}}\ncomputations:\n"
        f"  windows: {{{WINDOW}, output: {'raw' if steps else 'counts'}}}\n"
        + (f"  {stream}\n" if stream else "")
        + (f"  {more}\n" if more else "")
        + (SINK % sink if sink else "")
    )


@pytest.mark.parametrize(
    "sink",
    [
        "files: {path: out, mode: changelog}",
        "files: {path: out, mode: upsert}",
        "stdout: {mode: changelog}",
    ],
)
def test_sinks_that_take_retractions_are_right(check: Any, sink: str) -> None:
    check(pipeline(sink))


@pytest.mark.parametrize("steps", ["", "filter: n > 3"])
@pytest.mark.parametrize(
    "sink", ["files: {path: out}", "files: {path: out, mode: append}", "stdout: {}"]
)
def test_sinks_that_would_keep_what_was_taken_back_are_refused(
    problems: Any, sink: str, steps: str
) -> None:
    [problem] = problems(pipeline(sink, steps=steps))
    assert "the stream 'counts' carries retractions, records that take back earlier ones" in problem
    assert (
        "write mode: changelog (every change, marked) or mode: upsert (the current rows)" in problem
    )
    assert problem.startswith("pipeline.yaml:")
    assert "sinks.counts" in problem


def test_a_grouping_takes_them(check: Any) -> None:
    check(
        pipeline(
            "files: {path: out, mode: upsert}",
            "all: {input: counts, window: global, aggregate: {n: count}, "
            "trigger: {repeat: {after_count: 1}}, accumulation: accumulating, output: all}",
        )
    )


def test_a_callback_must_say_that_it_undoes_them(problems: Any) -> None:
    [problem] = problems(pipeline(more="calls: {input: counts, callback: detectors:Ticker}"))
    assert "computations.calls.input: its input carries retractions" in problem
    assert "set takes_retractions = True in Ticker" in problem
    assert problems(pipeline(more="calls: {input: counts, callback: detectors:Undoing}")) == []


def test_a_callback_with_a_window_takes_them(problems: Any) -> None:
    assert (
        problems(
            pipeline(more="w: {input: counts, window: {tumbling: 1h}, callback: detectors:Funnel}")
        )
        == []
    )


@pytest.mark.parametrize(
    ("by", "kind", "names"),
    [
        ("", KeyKind.RECORD, ()),
        (", by: path", KeyKind.FIELD, ("path",)),
        (", by: [path]", KeyKind.FIELD, ("path",)),
        (", by: [path, window_start]", KeyKind.FIELDS, ("path", "window_start")),
    ],
)
def test_rows_come_to_a_sink_by_what_identifies_them(
    check: Any, by: str, kind: KeyKind, names: tuple[str, ...]
) -> None:
    [sink] = check(pipeline(f"files: {{path: out, mode: upsert{by}}}")).sinks
    assert (sink.key.kind, sink.key.names) == (kind, names)


def test_what_is_no_field_is_refused(problems: Any) -> None:
    [problem] = problems(pipeline("files: {path: out, mode: upsert, by: [1]}"))
    assert "option 'by'" in problem


CHANGES = """
pipeline: p
streams:
  rows:
    source: {kafka: {brokers: "b:1", topics: [t], format: FORMAT}}
    timestamp: ts
sinks: {rows: {files: {path: out, MODE}}}
"""


@pytest.mark.parametrize("form", ["debezium", "{debezium: {encoding: json}}"])
def test_change_events_carry_retractions(check: Any, problems: Any, form: str) -> None:
    check(CHANGES.replace("FORMAT", form).replace("MODE", "mode: upsert, by: id"))
    [problem] = problems(CHANGES.replace("FORMAT", form).replace("MODE", "mode: append"))
    assert "the stream 'rows' carries retractions" in problem


def test_a_format_that_is_none_is_told_at_its_line(problems: Any) -> None:
    [problem] = problems(CHANGES.replace("FORMAT", "debezum").replace("MODE", "mode: append"))
    assert problem.startswith("pipeline.yaml:5")
    assert "option 'format' is 'debezum' (did you mean 'debezium'?)" in problem
