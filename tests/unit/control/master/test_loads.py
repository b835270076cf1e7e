from __future__ import annotations

from typing import Any

from millwheel.control.master.events import ShardLoad
from millwheel.control.master.loads import LoadBook

SECOND = 1_000_000


def report(token: int, records: int, busy_us: int, shard: str = "s-0") -> Any:
    return ShardLoad(
        shard=shard, token=token, records=records, busy_us=busy_us, sample=(1, 2), state_bytes=0
    )  # type: ignore[arg-type]


def book(*reports: tuple[int, Any]) -> LoadBook:
    made = LoadBook()
    for at, each in reports:
        made.take(each, at)
    return made


def test_a_load_is_known_from_the_second_report_on() -> None:
    assert book((0, report(1, 0, 0))).loads == {}
    [load] = book((0, report(1, 0, 0)), (SECOND, report(1, 100, SECOND // 2))).loads.values()
    assert (load.busy, load.records_per_s, load.sample) == (0.5, 100.0, (1, 2))


def test_totals_of_two_owners_have_no_difference() -> None:
    """A zombie's would make a busy shard look idle, and it would not move."""
    made = book(
        (0, report(1, 0, 0)), (SECOND, report(1, 100, SECOND)), (2 * SECOND, report(2, 0, 0))
    )
    assert made.loads["s-0"].busy == 1.0  # type: ignore[index]
    made.take(report(1, 200, 2 * SECOND), 3 * SECOND)
    assert made.loads["s-0"].busy == 1.0  # type: ignore[index]


def test_what_the_last_records_took_counts_for_one_owner() -> None:
    made = book(
        (0, report(1, 0, 0)), (SECOND, report(1, 100, 30_000)), (2 * SECOND, report(1, 200, 50_000))
    )
    load = made.loads["s-0"]  # type: ignore[index]
    assert (load.token, load.recent_records) == (1, 100)
    assert load.recent_us == 20_000
    made.take(report(2, 10, 40_000), 3 * SECOND)
    load = made.loads["s-0"]  # type: ignore[index]
    assert (load.token, load.recent_records, load.recent_us) == (2, 0, 0)
    made.take(report(2, 60, 90_000), 4 * SECOND)
    load = made.loads["s-0"]  # type: ignore[index]
    assert (load.recent_records, load.recent_us) == (50, 50_000)


def test_a_burst_moves_little_and_a_lasting_load_all() -> None:
    made = book((0, report(1, 0, 0)), (SECOND, report(1, 0, 0)), (2 * SECOND, report(1, 0, SECOND)))
    assert 0.2 < made.loads["s-0"].busy < 0.5  # type: ignore[index]
    for number in range(3, 30):
        made.take(report(1, 0, (number - 1) * SECOND), number * SECOND)
    assert made.loads["s-0"].busy > 0.99  # type: ignore[index]


def test_shards_that_are_gone_are_forgotten_and_two_reports_at_one_moment_are_one() -> None:
    made = book((0, report(1, 0, 0)), (0, report(1, 5, 5)))
    assert made.loads == {}
    made.take(report(1, 9, 9), SECOND)
    made.forget_others([])
    assert made.loads == {}
