from bench.figures import Figure
from bench.tables import number, series, table, title


def figure(contestant: str, rate: float, correct: bool = True) -> Figure:
    return Figure(
        part="A", contestant=contestant, variant="jsonl", run=0, campaign="s", at="", settings={},
        machine={},
        metrics={"records_per_s": rate}, correct=correct,
    )  # fmt: skip


def test_a_table_gives_medians_spreads_and_ratios_against_each_other_contestant() -> None:
    runs = [figure("millwheel", rate) for rate in (900_000, 1_000_000, 1_100_000)]
    runs += [figure("bytewax", rate) for rate in (250_000, 240_000, 260_000)]
    ours, theirs = table(series(runs), ["records_per_s"], "records_per_s").splitlines()[2:]
    assert ours == "| millwheel, jsonl | 3 | 1.00 M (900,000 to 1.10 M) |  |"
    assert theirs == "| bytewax, jsonl | 3 | 250,000 (240,000 to 260,000) | 4.00× |"


def test_a_wrong_run_counts_for_nothing_and_is_not_hidden() -> None:
    runs = [figure("bytewax", 5.0), figure("bytewax", 500.0, correct=False)]
    assert (
        table(series(runs), ["records_per_s"]).splitlines()[2] == "| bytewax, jsonl | 1 of 2 | 5 |"
    )


def test_a_contestant_without_a_right_run_has_no_result() -> None:
    assert "| 0 of 1 | no result |" in table(
        series([figure("bytewax", 5.0, correct=False)]), ["records_per_s"]
    )


def test_numbers_and_titles_are_as_people_write_them() -> None:
    assert [number(value) for value in (0.01234, 12.34, 1234.5, 1_234_567)] == [
        "0.0123",
        "12.3",
        "1,230",
        "1.23 M",
    ]
    names = (
        "records_per_s",
        "p50_ms",
        "rss_mb",
        "wrong_rows",
        "us_per_record",
        "cpu_us_per_record",
        "share_percent",
    )
    assert [title(name) for name in names] == [
        "records/s", "p50, ms", "rss, MB", "wrong, rows", "µs per record", "cpu, µs per record",
        "share, %",
    ]  # fmt: skip
