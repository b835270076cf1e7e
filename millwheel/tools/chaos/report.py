"""The result of a run under faults: a table for people, and plain values for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich.table import Table

from millwheel.tools.chaos.fault_injector import Outcome
from millwheel.tools.chaos.plan import Fault, Target
from millwheel.tools.chaos.recoveries import quantile
from millwheel.tools.chaos.results import Difference

_SHARES = {"p50": 0.5, "p99": 0.99}  # Fixed: the quantiles of the report
_COLUMNS = {
    "detected": "detected",
    "replaced": "a new process",
    "reassigned": "reassigned",
    "first_output": "first output",
}
Kind = tuple[Target, Fault]


def times_of(outcome: Outcome, kind: Kind) -> dict[str, list[float]]:
    """The times that were seen of one kind of fault, in seconds after it. There are fewer than
    faults when some came to nothing, or when another fault or the end of the run came first."""
    samples = [each for each in outcome.recoveries if (each.target, each.fault) == kind]
    counts = outcome.fault_counts.get(kind)
    return {
        "detected": [each.detected_s for each in samples if each.detected_s is not None],
        "replaced": list(counts.replaced_s) if counts is not None else [],
        "reassigned": [each.reassigned_s for each in samples if each.reassigned_s is not None],
        "first_output": [
            each.first_output_s for each in samples if each.first_output_s is not None
        ],
    }


def recovery_table(outcome: Outcome) -> Table:
    """One row for each kind of fault: how many, and p50/p99 of each time."""
    table = Table("what", "faults", *(f"{title}, s: p50 / p99" for title in _COLUMNS.values()))
    for kind in kinds_of(outcome):
        times = times_of(outcome, kind)
        cells = [_cell(times[name]) for name in _COLUMNS]
        table.add_row(
            f"{kind[1].value} {kind[0].value}", str(outcome.fault_counts[kind].number), *cells
        )
    return table


def kinds_of(outcome: Outcome) -> list[Kind]:
    """The kinds of faults that there were."""
    return sorted(outcome.fault_counts, key=lambda kind: (kind[0].value, kind[1].value))


def _cell(samples: Sequence[float]) -> str:
    if not samples:
        return "-"
    return " / ".join(f"{quantile(samples, share):.2f}" for share in _SHARES.values())


def summary(
    calm: Outcome,
    disturbed: Outcome,
    differences: Sequence[Difference],
    free: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Any]:
    """All of it as plain values. Times are in seconds. ``free``: where arrival decides, by
    stream."""
    return {
        "calm_s": round(calm.seconds, 3),
        "chaos_s": round(disturbed.seconds, 3),
        "faults": [
            {
                "target": target.value,
                "fault": fault.value,
                "count": disturbed.fault_counts[target, fault].number,
                **{
                    name: _figures(samples)
                    for name, samples in times_of(disturbed, (target, fault)).items()
                },
            }
            for target, fault in kinds_of(disturbed)
        ],
        "sinks": [
            {
                "stream": each.stream,
                "rows": each.rows,
                "missing": each.lost,
                "extra": each.surplus,
                "arrival": list(free.get(each.stream, ())),
            }
            for each in differences
        ],
    }


def _figures(samples: Sequence[float]) -> dict[str, float | int]:
    figures: dict[str, float | int] = {"seen": len(samples)}
    for name, share in _SHARES.items():
        value = quantile(samples, share)
        if value is not None:
            figures[name] = round(value, 3)
    return figures
