"""Part C: 5,000 records/s over 1,000 keys through two keyed stages; from a record's creation until
its result is seen.

Creation is when the schedule of the source says, not when the source woke up. The first five
seconds are left out. Ours is seen when the sink publishes what is durable; at least once, and with
peers, when the record reaches the sink, before the commit or snapshot that covers it. Flink and
Spark read a socket, and get records of nobody's key before the others, while they warm up.
Expected: 1.2 to 1.7 minutes per run, 3 runs of ours and one of each peer a round; a run is given up
90 s after its records should have been seen.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec

from bench.contest import execute
from bench.contestants import FLINK, SPARK, Contestant, Job, bytewax, local, ours
from bench.figures import Figure
from bench.rounds import Entry, Measured, Wanted, alternate
from bench.stats import quantile

RATE, SECONDS, QUICK_SECONDS, WARM_UP_S = 5_000, 60, 8, 5.0
GROUPS = 50
DIAL = {
    "strong": {
        "delivery": "exactly_once",
        "productions": "strong",
        "at_once": "false",
        "pace": "greedy",
    },
    "weak": {
        "delivery": "exactly_once",
        "productions": "weak",
        "at_once": "false",
        "pace": "greedy",
    },
    "at least once": {
        "delivery": "at_least_once",
        "productions": "weak",
        "at_once": "true",
        "pace": "greedy",
    },
}
PEERS = (
    Contestant("bytewax", bytewax("bytewax_latency.py", 1, 1)),
    Contestant("flink, thread mode", local("flink_latency.py", python=FLINK)),
    Contestant("spark", local("spark_latency.py", python=SPARK)),
)

Line = tuple[float, list[tuple[int, int, float]]]
"""(seen at, [(group, total, created at)]), s since 1970."""


def latency(wanted: Wanted) -> list[Figure]:
    """Part C."""
    seconds = QUICK_SECONDS if wanted.quick else SECONDS
    pace = {"rate": str(RATE), "count": str(RATE * seconds)}
    entries = [
        Entry(
            "millwheel",
            name,
            partial(measure, Contestant("millwheel", ours("latency", params=dial)), pace, seconds),
        )
        for name, dial in DIAL.items()
    ]
    entries += [Entry(peer.name, "", partial(measure, peer, pace, seconds)) for peer in PEERS]
    return alternate(
        "C", entries, {"rate": RATE, "seconds": seconds, "keys": 1_000, "groups": GROUPS}, wanted
    )


def measure(contestant: Contestant, pace: dict[str, str], seconds: float, folder: Path) -> Measured:
    """One run, checked."""
    job = Job(folder, None, "", seconds + 90, pace)
    outcome = execute(contestant.start(job))
    if outcome.error:
        return Measured({}, None, outcome.error)
    seen = lines(job.output)
    if not right(seen, int(pace["count"])):
        return Measured(
            {},
            False,
            f"{sum(len(rows) for _, rows in seen)} results, or wrong totals: {outcome.tail}",
        )
    created = [at for _, rows in seen for *_, at in rows]
    cores = outcome.cores(min(created) + WARM_UP_S, max(created))
    used = {
        "cpu_s": outcome.cpu_s,
        "rss_mb": outcome.rss_mb,
        **({} if cores is None else {"cores": cores}),
    }
    return Measured({**quantiles_ms(seen), **used}, True)


def lines(folder: Path) -> list[Line]:
    """All that the sinks of a run noted."""
    decode = msgspec.json.Decoder(Line).decode
    return [
        decode(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
    ]


def right(seen: list[Line], records: int) -> bool:
    """One result per record, and the last totals of the groups add up to all records."""
    last: dict[int, int] = {}
    for _, rows in seen:
        for group, total, _ in rows:
            last[group] = max(total, last.get(group, 0))
    return sum(len(rows) for _, rows in seen) == records == sum(last.values())


def quantiles_ms(seen: list[Line]) -> dict[str, float]:
    """Of the records that were created after the warm-up."""
    since = min(created for _, rows in seen for *_, created in rows) + WARM_UP_S
    spent = sorted(
        (at - created) * 1e3 for at, rows in seen for *_, created in rows if created >= since
    )
    shares = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
    return {**{name: quantile(spent, share) for name, share in shares.items()}, "max_ms": spent[-1]}
