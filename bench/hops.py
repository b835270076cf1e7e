"""Part G: the rate of one worker and of two, and the price of a hop between workers. Expected: 3
minutes a round.

Every worker has the same amount of input, so twice the rate is what two can give at best.

For the hop two workers do parts A (columns) and B (rows) on two files, each of which holds ads of
one half of the key space. A worker reads one file and owns the shards of one half of the key space,
so it is the order of the files that says whether every record stays with its worker or goes to the
other one. All else is equal: the same records, workers, shards and files. The hop is the one from
the source to the computation. ``loopback_mb`` is what all processes of the machine sent each other
meanwhile: it shows that records do cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import psutil

from bench.contestants import Contestant, ours
from bench.figures import Figure
from bench.inputs import Input, Order, ads
from bench.paired import differences, ratios
from bench.rounds import Entry, Measured, Wanted, alternate
from bench.tables import cell
from bench.throughput import FILES, QUICK_RECORDS, RECORDS, measure

FORMS = {"columns": ("windows", "A"), "rows": ("callback", "B")}
HOP = {Order.LOCAL: "every record stays", Order.ACROSS: "every record crosses"}


def scale(wanted: Wanted) -> list[Figure]:
    """Part G."""
    each = (QUICK_RECORDS if wanted.quick else RECORDS) // 2
    entries = []
    for pipeline, part in FORMS.values():
        for count in (1, 2):
            load = ads(each * count, FILES // 2 * count)
            entries.append(_entry(f"{pipeline}, {count} workers", pipeline, part, count, load))
    for form, (pipeline, part) in FORMS.items():
        for order, name in HOP.items():
            entries.append(_entry(f"{form}, {name}", pipeline, part, 2, ads(each * 2, 2, order)))
    return alternate("G", entries, {"records_per_worker": each}, wanted)


def _entry(name: str, pipeline: str, part: str, workers: int, load: Input) -> Entry:
    return Entry("millwheel", name, partial(_measured, pipeline, part, workers, load))


def _measured(pipeline: str, part: str, workers: int, load: Input, folder: Path) -> Measured:
    """One run, with the CPU time of all processes per record, their start included."""
    before = psutil.net_io_counters(pernic=True)["lo"].bytes_sent
    found = measure(
        part, Contestant("millwheel", ours(pipeline, workers=workers)), "jsonl", load, folder
    )
    if not found.metrics:
        return found
    more = {
        "cpu_us_per_record": found.metrics["cpu_s"] / load.records * 1e6,
        "loopback_mb": (psutil.net_io_counters(pernic=True)["lo"].bytes_sent - before) / 1e6,
    }
    return Measured({**found.metrics, **more}, found.correct, found.error)


def table(campaign: Sequence[Figure]) -> str:
    """What crossing costs, within each round; empty when no round has both."""
    rows = []
    for form in FORMS:
        stays, crosses = (f"{form}, {HOP[order]}" for order in (Order.LOCAL, Order.ACROSS))
        times = ratios(campaign, "records_per_s", crosses, stays)
        more = differences(campaign, "cpu_us_per_record", crosses, stays)
        if times is not None:
            rows.append(f"| {form} | {cell(times)} | {cell(more)} |")
    if not rows:
        return ""
    head = (
        "| a hop to another worker | rate, times that of a local hop | CPU more per record, µs"
        " |\n|---|---|---|\n"
    )
    return head + "\n".join(rows)
