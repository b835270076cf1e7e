from __future__ import annotations

import pytest

from bench import tracing_cost


def test_each_kind_of_round_is_measured_and_only_the_sampled_one_has_spans() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    found = tracing_cost.measured(2, 0.01)
    assert min(found["plain_ms"], found["idle_ms"], found["sampled_ms"]) > 0
    assert 50 < found["spans"] < 1_000
