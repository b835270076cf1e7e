"""Part E: dense sliding windows, ours by key and native, and native ones of peers. Expected: 4
minutes a round.

All see the same records of one key, in order (see ``key_windows``). Ours runs a machine of windows
in one process; its time is that of the CPU. Peers read the records from a file and write the
results into one; their time is from the first opening of the input to the last byte of the results,
Spark's after a first query that is not measured. They get three sizes only, and two minutes each:
what they do per record grows with the windows that it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from bench import key_windows
from bench.contest import execute
from bench.contestants import BYTEWAX, SPARK, Contestant, Job, local
from bench.figures import Figure
from bench.rounds import Entry, Measured, Wanted, alternate
from bench.tables import number, of_metric, series
from millwheel.core.model.times import duration_us
from millwheel.core.windows.windows import Sliding

PEERS = (
    Contestant("bytewax", local("bytewax_sliding.py", python=BYTEWAX)),
    Contestant("spark", local("spark_sliding.py", python=SPARK), ended=True),
)
PEER_SIZES, QUICK_PEER_SIZES = key_windows.SIZES[:3], key_windows.SIZES[:1]
TIMEOUT_S = 120.0


def dense(wanted: Wanted) -> list[Figure]:
    """Part E. All sizes of ours are measured at once, in the first entry of a round."""
    found: dict[str, key_windows.Figure] = {}

    def of(name: str, folder: Path) -> Measured:
        if name not in found:
            found.update(
                {
                    _name(figure.length, figure.slide, figure.kind): figure
                    for figure in key_windows.figures()
                }
            )
        figure = found.pop(name)
        metrics = {
            "windows_per_record": figure.windows / key_windows.RECORDS,
            "us_per_record": figure.us_per_record,
            "state_bytes": figure.state_bytes,
        }
        return Measured(
            {metric: float(value) for metric, value in metrics.items() if value is not None}, True
        )

    names = [
        _name(length, slide, kind)
        for length, slide in key_windows.SIZES
        for kind in ("native", "key")
    ]
    entries = [Entry("millwheel", name, partial(of, name)) for name in names]
    for length, slide in QUICK_PEER_SIZES if wanted.quick else PEER_SIZES:
        name = _name(length, slide, "native")
        entries += [
            Entry(peer.name, name, partial(measure, peer, Sliding(length, slide))) for peer in PEERS
        ]
    return alternate(
        "E", entries, {"records": key_windows.RECORDS, "time-out of peers, s": TIMEOUT_S}, wanted
    )


def measure(peer: Contestant, window: Sliding, folder: Path) -> Measured:
    """One run of a peer, checked by how many windows it said and what all of them add up to."""
    records = key_windows.records()
    (folder / "in").mkdir()
    end = [(-1, records[-1][1] + duration_us("1d"))] if peer.ended else []
    lines = [
        msgspec.json.encode({"value": value, "at": at}) + b"\n" for value, at in (*records, *end)
    ]
    (folder / "in" / "records.jsonl").write_bytes(b"".join(lines))
    size = {"length": str(window.size), "slide": str(window.every)}
    outcome = execute(peer.start(Job(folder, folder / "in", "jsonl", TIMEOUT_S, size)))
    if outcome.error:
        return Measured({}, None, outcome.error)
    if outcome.seconds is None:
        return Measured({}, False, f"no results: {outcome.tail}")
    said, total = results(folder / "out")
    want = (
        key_windows.native_count(window, records),
        sum(value for value, _ in records) * (window.size // window.every),
    )
    if (said, total) != want:
        return Measured(
            {}, False, f"{said} windows of {total} in all, expected {want[0]} of {want[1]}"
        )
    count = len(records)
    return Measured(
        {"windows_per_record": said / count, "us_per_record": outcome.seconds / count * 1e6}, True
    )


def results(folder: Path) -> tuple[int, int]:
    """How many windows the JSON lines of a peer say, and the sum of their sums."""
    sums = [
        int(msgspec.json.decode(line)["sum"])
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        for line in path.read_bytes().splitlines()
    ]
    return len(sums), sum(sums)


def table(campaign: Sequence[Figure]) -> str:
    """How many times as long native windows take as key windows of the same size, ours and those of
    peers."""
    runs = series(campaign)
    names = [
        "millwheel",
        *(
            peer.name
            for peer in PEERS
            if any(figure.contestant == peer.name for figure in campaign)
        ),
    ]
    lines = [
        f"| windows | native, times as long as by key: {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    for length, slide in key_windows.SIZES:
        mine = runs.get(("millwheel", _name(length, slide, "key")), [])
        key = of_metric(mine, "us_per_record")
        if key is None or not key.median:
            continue
        times = [
            _times(runs.get((who, _name(length, slide, "native")), []), key.median) for who in names
        ]
        lines.append(f"| {length}/{slide} | {' | '.join(times)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def _times(native: Sequence[Figure], key_us: float) -> str:
    found = of_metric(native, "us_per_record")
    if found is not None:
        return number(found.median / key_us)
    return "no result" if any(figure.error for figure in native) else "not run"


def _name(length: str, slide: str, kind: str) -> str:
    return f"{length}/{slide} {kind}"
