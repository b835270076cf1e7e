"""Who is late among injected records."""

from __future__ import annotations

from typing import Any

import msgspec

from millwheel.core.windows.lateness import late_rows
from millwheel.engine.workers.shard.shard import Shard
from millwheel.engine.workers.sources.injection import InjectionOperator
from tests.sim.kernel import Failure


class InjectedRecordsAreLateByThoseBeforeThem:
    """A record is late when it is more than the delay of its stream behind one that its shard took
    before, as in a file. Neither clocks nor how many came at once have a part in it. With times of
    arrival none is."""

    def observe(self, shard: Shard) -> None:
        operator: Any = shard.operator
        if not isinstance(operator, InjectionOperator):
            return
        right, spec = operator.run, operator._spec

        def run(bundle: Any) -> None:
            rows = [
                msgspec.json.decode(raw)
                for arrival in bundle.arrivals
                for raw in arrival.batch.rows().values
            ]
            times = (
                []
                if spec.arrival
                else [row[spec.timestamp] for row in rows if spec.timestamp in row]
            )
            want = len(late_rows(times, operator._max_timestamp, spec.max_delay_us))
            right(bundle)
            late = bundle.counters.get("late", 0)
            if late != want:
                raise Failure(
                    f"injected records are late by those before them: {shard.identity.shard} calls"
                    f" {late} of {times} late, {want} are",
                    (shard.identity.shard,),
                )

        operator.run = run  # type: ignore[method-assign]
