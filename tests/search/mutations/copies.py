"""Mistakes about copies of tables, of which the ways that divide keys make some."""

from __future__ import annotations

from typing import Any

from millwheel.core.pipeline.work import EnrichSpec
from millwheel.engine.workers.operators import callbacks
from millwheel.engine.workers.operators.broadcast import copies
from millwheel.engine.workers.operators.broadcast.copies import EnrichedInCopies
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=2, features="enrich", variants="divided", first=7)
def records_do_not_wait_for_the_changes_of_their_copy() -> Context:
    """They get the rows that have come."""
    right = callbacks.order_buffer  # type: ignore[attr-defined]

    def wrong(spec: Any, *rest: Any) -> Any:
        copied = isinstance(spec.work, EnrichSpec) and spec.work.copied
        return None if copied else right(spec, *rest)

    return replaced(callbacks, "order_buffer", wrong)


@mistake(within=2, features="enrich", variants="divided", first=2)
def one_copy_gets_no_changes() -> Context:
    """All but the first get them."""
    right = copies.copy_keys  # type: ignore[attr-defined]
    return replaced(copies, "copy_keys", lambda number: right(number)[1:])


@mistake(within=2, features="enrich", variants="divided", first=2)
def a_copy_has_one_version_for_all_keys() -> Context:
    """The one that came last."""
    right = EnrichedInCopies._point

    def wrong(self: Any, key: Any) -> None:
        right(self, key)
        self._name = b""

    return replaced(EnrichedInCopies, "_point", wrong)
