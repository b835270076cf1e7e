"""The changes to the results of an aggregation before they are emitted: fields made of them
(``then``), and a condition (``having``).

Both depend on a result alone. So a record that takes a result back is shown as the result was, and
a group that no longer satisfies the condition is taken back and not replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec
from millwheel.core.pipeline.work import AggregationSpec

Shown = Callable[[dict[str, Any]], dict[str, Any] | None]
"""The row of a result, which it may change -> the row to emit; None: it is left out. Raises
RecordError where an expression cannot be computed."""


def shows_each(spec: ComputationSpec) -> bool:
    """Whether a computation has ``then`` or ``having``."""
    work = spec.work
    whole = spec.stage is not AggregationStage.PARTIAL
    return isinstance(work, AggregationSpec) and whole and bool(work.then or work.having)


def shown_by(spec: ComputationSpec, compile_expression: Callable[[str], Any]) -> Shown:
    """How the results of a computation are shown."""
    work = spec.work
    if not isinstance(work, AggregationSpec) or not shows_each(spec):
        return lambda row: row
    then = [(name, compile_expression(text).evaluate) for name, text in work.then.items()]
    having = compile_expression(work.having).evaluate if work.having else None

    def shown(row: dict[str, Any]) -> dict[str, Any] | None:
        for name, evaluate in then:
            row[name] = evaluate(row)
        return row if having is None or having(row) else None

    return shown
