"""Runs over what a topic holds now: one a day on the same root, one that failures stop, one that
begins with a savepoint."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.servers.kafka import Broker
from tests.slow.kafka import committed, produce
from tests.slow.runs import Run
from tests.slow.test_savepoints import command
from tests.slow.waits import until

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: days
streams:
  clicks:
    source: {kafka: {brokers: "${brokers}", topics: [daily], group: daily}}
    timestamp: {field: ts, unit: s}
    watermark: {max_delay: 1s}
computations:
  checked: {input: {clicks: {key: page}}, callback: "checking:Check", output: good, on_error: stop}
  counts: {input: {good: {key: page}}, window: {tumbling: 1m}, aggregate: {n: count},
    output: counts}
sinks:
  counts: {kafka: {brokers: "${brokers}", topic: daily-counts}}
"""
CODE = """
from millwheel import Computation

class Check(Computation):
    def process_record(self, ctx, record):
        if record.value["page"] == "odd" and not FIXED:
            raise ValueError("an odd page")
        ctx.produce("good", record.value)
"""
MINUTE = 60


def day(broker: Broker, first_s: int, last_s: int, odd: bool = False) -> list[tuple[str, int]]:
    """The records of some seconds, in two partitions; what must follow from each."""
    clicks = [{"page": f"p{at % 3}", "ts": at} for at in range(first_s, last_s)]
    clicks += [{"page": "odd", "ts": last_s - 1}] if odd else []
    produce(broker, "daily", [(number % 2, None, click) for number, click in enumerate(clicks)])
    return [(str(click["page"]), int(str(click["ts"])) // MINUTE) for click in clicks]


def begun(tmp_path: Path, broker: Broker, fixed: bool, *more: str, root: str = "root") -> Run:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "checking.py").write_text(CODE.replace("FIXED", str(fixed)))
    place = str(tmp_path / root)
    return Run(
        tmp_path / "p.yaml",
        tmp_path,
        {"brokers": broker.address},
        workers=1,
        more=more,
        place=place,
    ).start()


def caught_up(
    tmp_path: Path, broker: Broker, *more: str, fixed: bool = False, root: str = "root"
) -> Run:
    return begun(tmp_path, broker, fixed, "--until-caught-up", *more, root=root).wait()


def counted(broker: Broker) -> Counter[tuple[str, int]]:
    rows = [json.loads(value or b"") for _, value in committed(broker, "daily-counts", 1)]
    found = Counter(
        {(row["page"], row["window_start"] // (MINUTE * 1_000_000)): row["n"] for row in rows}
    )
    assert len(found) == len(rows), "a window appears twice"
    return found


def test_day_by_day_and_over_a_savepoint_each_window_appears_once(
    broker: Broker, tmp_path: Path
) -> None:
    broker.make_topic("daily", 2)
    broker.make_topic("daily-counts", 1)
    events = day(broker, 0, 3 * MINUTE + 30)
    first = caught_up(tmp_path, broker)
    assert (first.code, "Caught up." in first.said) == (0, True), first.said
    assert counted(broker) == Counter(each for each in events if each[1] < 3), (
        "open windows stay open"
    )

    events += day(broker, 3 * MINUTE + 30, 5 * MINUTE + 30, odd=True)
    failed = caught_up(tmp_path, broker)
    assert (failed.code, "an odd page" in failed.said) == (3, True), failed.said
    second = caught_up(tmp_path, broker, fixed=True)
    assert second.code == 0, second.said
    assert counted(broker) == Counter(each for each in events if each[1] < 5)

    following = begun(tmp_path, broker, True)
    words = ("stop", "--savepoint", str(tmp_path / "saved"), "--root", str(tmp_path / "root"))
    until(lambda: command(*words).returncode == 0, following)  # it has begun
    assert following.wait().code == 0, following.said
    events += day(broker, 5 * MINUTE + 30, 7 * MINUTE + 30)
    third = caught_up(
        tmp_path, broker, "--from-savepoint", str(tmp_path / "saved"), fixed=True, root="new"
    )
    assert third.code == 0, third.said
    assert counted(broker) == Counter(each for each in events if each[1] < 7)
    assert third.summary["records_in"] >= len(events), "the totals go on"
