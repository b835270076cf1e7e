"""Plans of an aggregation over undeclared fields, and the column of groups that names the types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from millwheel.core.aggregates.functions import keeps_records
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.from_spec import fields_used, typed_plan
from millwheel.core.columns.groups_frame import key_parts
from millwheel.core.columns.key_columns import fields_read
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.segments import Types
from millwheel.core.expressions.inner_fields import with_inner_fields
from millwheel.core.lazy_polars import kind_of, pl
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.windows.contract import Windowing
from millwheel.core.windows.windows import Tumbling

_MARK = "types "
"""The beginning of the name of the column with the types; no aggregate's column begins so."""


def with_types(groups: pl.DataFrame, types: Types) -> pl.DataFrame:
    """Groups with the types of the fields of their records, in the name of an empty column: the
    columns of accumulators do not determine all of them."""
    if not types:
        return groups
    return groups.with_columns(
        pl.lit(None, pl.Null).alias(_MARK + msgspec.json.encode(types).decode())
    )


def types_in(groups: pl.DataFrame) -> Types:
    """The types that :func:`with_types` has added; none where the types are declared."""
    marks = [name for name in groups.columns if name.startswith(_MARK)]
    return msgspec.json.decode(marks[0].removeprefix(_MARK), type=Types) if marks else ()


class PlansByType:
    """The plans of an aggregation over fields without declared types, by the types found in the
    data. ``needs`` are the fields; ``whole``: all others are kept, too. ``why_in_rows``: why
    columns do not hold the state of a plan; "" when they do."""

    def __init__(
        self,
        spec: ComputationSpec,
        windowing: Windowing,
        compile_expression: Callable[[str], Any],
        why_in_rows: Callable[[ColumnPlan | None], str],
        beside: str = "",
    ) -> None:
        self._spec = spec
        self.why_in_rows = why_in_rows
        self._windowing = windowing
        self._compile = compile_expression
        self._plans: dict[tuple[tuple[str, str], ...], ColumnPlan | None] = {}
        self._key = spec.inputs[0].key
        self._beside = beside if beside.isidentifier() else ""
        used = fields_used(spec, windowing.window, compile_expression)
        used |= {*fields_read(self._key, compile_expression)}
        self.needs = frozenset(used or filter(None, [self._beside]))
        self.whole = any(map(keeps_records, spec.aggregates))

    @property
    def held(self) -> bool:
        """Whether columns hold the state while types do not change."""
        return not self.why_in_rows(None)

    @property
    def combines(self) -> bool:
        """Whether senders may group records by any of the plans: see
        :attr:`.ColumnPlan.combines`."""
        return isinstance(self._windowing.window, Tumbling) and self.held

    def plan(self, fields: Mapping[str, str]) -> ColumnPlan | None:
        """The plan for fields of these types, None when it has no column form."""
        types = tuple((name, fields[name]) for name in sorted(self.needs & fields.keys()))
        if types not in self._plans:
            window = self._windowing.window
            plan = typed_plan(self._spec, window, dict(types), self._compile, self._beside)
            # With undeclared fields, the row form gives 0 for an empty sum, whichever type the
            # other sums have.
            self._plans[types] = None if isinstance(plan, str) else self._inferred(plan, types)
        return self._plans[types]

    def _inferred(self, plan: ColumnPlan, types: tuple[tuple[str, str], ...]) -> ColumnPlan:
        held = self.held and not self.why_in_rows(plan)
        return replace(plan, fires_once=held, floats=(), inferred=types)

    def of_any(self, batch: AnyBatch) -> ColumnPlan | None:
        """The plan for a batch, None when it is in rows."""
        return self.of(batch) if isinstance(batch, ColumnBatch) else None

    def of(self, batch: ColumnBatch) -> ColumnPlan | None:
        """The plan for a batch."""
        keys = zip(self._key.names if self._key.plain else (), key_parts(batch.keys), strict=False)
        types = {name: kind_of(column.dtype) for name, column in keys}
        schema = with_inner_fields(batch.frame.head(0), self.needs).schema
        return self.plan({name: kind_of(kind) for name, kind in schema.items()} | types)
