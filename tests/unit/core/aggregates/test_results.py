"""Fields that are made of results, and results that are left out."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.aggregates.results import shown_by, shows_each
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec
from millwheel.core.pipeline.work import AggregationSpec, WindowSpec
from millwheel.errors import RecordError


def spec(stage: AggregationStage = AggregationStage.WHOLE, **fields: Any) -> ComputationSpec:
    work = AggregationSpec(window=WindowSpec("global"), **fields)
    return ComputationSpec("c", (), work=work, stage=stage)


def test_each_field_may_read_those_before_it() -> None:
    shown = shown_by(spec(then={"mean": "total / n", "twice": "mean * 2"}), compile_expression)
    assert shown({"n": 2, "total": 6}) == {"n": 2, "total": 6, "mean": 3.0, "twice": 6.0}


def test_a_condition_reads_what_has_been_made() -> None:
    shown = shown_by(spec(then={"mean": "total / n"}, having="mean > 2"), compile_expression)
    assert shown({"n": 2, "total": 6}) == {"n": 2, "total": 6, "mean": 3.0}
    assert shown({"n": 3, "total": 6}) is None
    with pytest.raises(RecordError, match="division by zero"):
        shown({"n": 0, "total": 6})


def test_parts_of_a_divided_key_are_not_results_yet() -> None:
    assert shows_each(spec(having="n > 1"))
    partial = spec(AggregationStage.PARTIAL, having="n > 1")
    assert not shows_each(partial)
    assert not shows_each(spec())
    assert shown_by(partial, compile_expression)({"acc": b""}) == {"acc": b""}
