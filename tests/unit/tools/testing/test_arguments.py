"""Mistakes of a test are told in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.errors import MillwheelError
from millwheel.testing import PipelineHarness
from tests.unit.tools.testing.test_pipeline_harness import Make, S, order


def test_a_timestamp_is_written_where_the_stream_looks_for_it_in_its_unit(make: Make) -> None:
    harness = make()
    record = order(1)
    del record["ts"]
    harness.push("orders", record, timestamp=90 * S)
    assert [(r.timestamp, r.value["ts"]) for r in harness.records("orders")] == [(90 * S, 90_000)]
    assert "ts" not in record


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (
            lambda h: h.push("order", {}),
            ValueError,
            "unknown stream 'order'; did you mean 'orders'?",
        ),
        (lambda h: h.push("by_minute", {}), ValueError, "the computation 'minutes' produces it"),
        (
            lambda h: h.push("orders", {}, timestamp="now"),
            TypeError,
            "timestamp must be a whole number of µs",
        ),
        (lambda h: h.push("orders", {}, timestamp=True), TypeError, "not True"),
        (lambda h: h.push("orders", {}, timestamp=1), ValueError, "units of 1000 µs"),
        (
            lambda h: h.push("orders", {"ts": 7}, timestamp=0),
            ValueError,
            "has its own time: ts=7",
        ),
        (lambda h: h.push("orders", 5, timestamp=0), ValueError, "5 has no fields; push a dict"),
        (lambda h: h.push("orders", {}, key=5), TypeError, "names what the records come from"),
        (lambda h: h.advance_watermark(5.0), TypeError, "the watermark must be a whole number"),
        (lambda h: h.advance_watermark(2**63 - 1), ValueError, "end of input is finish"),
        (lambda h: h.advance_watermark(9), ValueError, "never goes back: that of 'orders' is 10"),
        (lambda h: h.advance_watermark(1, "returned"), ValueError, "did you mean 'returns'?"),
        (
            lambda h: h.advance_processing_time(-1),
            ValueError,
            "the clock is at 0 and cannot go back",
        ),
        (lambda h: h.read("by_minutes"), ValueError, "did you mean 'by_minute'?"),
        (
            lambda h: h.state("account", "ann"),
            ValueError,
            "unknown computation 'account'; did you mean 'accounts'?",
        ),
        (lambda h: h.open_windows("accounts", "ann"), ValueError, "has no windows"),
        (lambda h: (h.finish("orders"), h.push("orders", {})), ValueError, "orders was finished"),
        (lambda h: (h.close(), h.read("orders")), MillwheelError, "this harness is closed"),
    ],
)
def test_a_mistake_of_the_test_is_told_in_a_sentence(
    make: Make, wrong: Any, error: type, words: str
) -> None:
    harness = make()
    harness.advance_watermark(10, "orders")
    with pytest.raises(error, match=words.replace("(", r"\(")):
        wrong(harness)


def test_a_timestamp_is_written_as_the_stream_reads_it(tmp_path: Path) -> None:
    text = (
        "pipeline: p\nstreams: {s: {source: {injection: {}}, timestamp: at, fields: {at: FORM}}}\n"
        "computations: {c: {input: s, map: {at: at}, output: out}}\n"
    )
    (tmp_path / "p.yaml").write_text(text.replace("FORM", "{type: timestamp, unit: ms}"))
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        harness.push("s", {}, timestamp=1_234_567_001)
        harness.push("s", {"at": 1_234_567})
        assert harness.read("out") == [{"at": 1_234_567_001}, {"at": 1_234_567_000}]
    (tmp_path / "p.yaml").write_text(text.replace("FORM", "{type: timestamp, format: '%Y'}"))
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        with pytest.raises(ValueError, match="declares a format of 'at'; put such a text"):
            harness.push("s", {}, timestamp=0)
