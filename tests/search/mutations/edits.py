"""Deliberate mistakes about what may change on a root."""

from __future__ import annotations

from typing import Any

from millwheel.control.savepoints import blueprint
from millwheel.core.machines import combined
from millwheel.core.pipeline.spec import Delivery
from millwheel.engine.workers.host import grouping
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=10, features="tumbling_window aggregate", variants="edited", first=399)
def whoever_takes_copies_takes_no_groups() -> Context:
    """An aggregation whose delivery is changed does not know the groups that are on their way to
    it."""

    def wrong(spec: Any, windowing: Any, aggregation: Any) -> str:
        why = combined.why_not_combined(spec, windowing, aggregation)
        return why or ("sent at least once" if spec.delivery is Delivery.AT_LEAST_ONCE else "")

    return replaced(grouping, "why_not_combined", wrong)


@mistake(within=10, features="steps_in_columns windowed aggregate", variants="edited edited-often")
def windows_go_on_whatever_type_is_made_before_them() -> Context:
    """That a changed step makes another type does not keep open windows in columns from going
    on."""
    return replaced(blueprint, "follows_types", lambda stream, pipeline: False)
