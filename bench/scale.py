"""Parts E, G and H: dense windows, more workers, and the price of ids; all of them ours alone.

Expected: E 1 minute, G and H 2 minutes a round.

**G** gives every worker the same amount of input, so twice the rate is what two can give at best. **H** is part B
with and without an id of each record, none of them a copy: each id is asked for and remembered.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench import key_windows
from bench.contestants import Contestant, ours
from bench.figures import Figure
from bench.inputs import ads
from bench.rounds import Entry, Measured, Wanted, alternate
from bench.throughput import FILES, QUICK_RECORDS, RECORDS, measure


def dense(wanted: Wanted) -> list[Figure]:
    """Part E: see ``key_windows``. All sizes are measured at once, in the first entry of a round."""
    found: dict[str, key_windows.Figure] = {}

    def of(name: str, folder: Path) -> Measured:
        if name not in found:
            found.update({_name(figure): figure for figure in key_windows.figures()})
        figure = found.pop(name)
        metrics = {
            "windows_per_record": figure.windows / key_windows.RECORDS,
            "us_per_record": figure.us_per_record,
            "state_bytes": figure.state_bytes,
        }
        return Measured({metric: float(value) for metric, value in metrics.items() if value is not None}, True)

    names = [f"{length}/{slide} {kind}" for length, slide in key_windows.SIZES for kind in ("native", "key")]
    entries = [Entry("millwheel", name, partial(of, name)) for name in names]
    return alternate("E", entries, {"records": key_windows.RECORDS}, wanted)


def _name(figure: key_windows.Figure) -> str:
    return f"{figure.length}/{figure.slide} {figure.kind}"


def workers(wanted: Wanted) -> list[Figure]:
    """Part G."""
    each = (QUICK_RECORDS if wanted.quick else RECORDS) // 2
    entries = []
    for pipeline, part in (("windows", "A"), ("callback", "B")):
        for count in (1, 2):
            system = Contestant("millwheel", ours(pipeline, workers=count))
            load = ads(each * count, FILES // 2 * count)
            entries.append(
                Entry("millwheel", f"{pipeline}, {count} workers", partial(measure, part, system, "jsonl", load))
            )
    return alternate("G", entries, {"records_per_worker": each}, wanted)


def ids(wanted: Wanted) -> list[Figure]:
    """Part H."""
    load = ads(QUICK_RECORDS if wanted.quick else RECORDS, FILES)
    chosen = {
        "no ids": ours("callback"),
        "ids for 1m": ours("callback_ids", params={"horizon": "1m"}),
        "ids for 1h": ours("callback_ids", params={"horizon": "1h"}),
    }
    entries = [
        Entry("millwheel", name, partial(measure, "B", Contestant("millwheel", start), "jsonl", load))
        for name, start in chosen.items()
    ]
    return alternate("H", entries, {"records": load.records, "files": load.files}, wanted)
