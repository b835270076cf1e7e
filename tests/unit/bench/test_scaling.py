from bench.scaling import ScaleRun, picture, table


def of(workers: int, run: int, rate: float, correct: bool = True) -> ScaleRun:
    return ScaleRun("A", workers, run, {"records_per_s": rate, "seconds": 1.0}, correct=correct)


def test_rates_are_medians_and_times_that_of_the_fewest_workers() -> None:
    found = [of(1, 0, 100.0), of(1, 1, 300.0), of(1, 2, 200.0), of(2, 0, 300.0)]
    assert table(found).splitlines() == [
        "| A: workers | records_per_s | seconds | times the first |",
        "|---|---|---|---|",
        "| 1 | 200 | 1 | 1.00 |",
        "| 2 | 300 | 1 | 1.50 |",
    ]


def test_wrong_and_failed_runs_give_no_figures() -> None:
    failed = ScaleRun("A", 1, 1, error="it fell over")
    assert "1,000" not in table([of(1, 0, 100.0), of(1, 2, 1_000.0, correct=False), failed])
    assert table([failed]) == "A: no run was right"


def test_each_work_has_a_table() -> None:
    nodes = ScaleRun("32 nodes", 4, 0, {"first_row_s": 2.5})
    assert table([of(1, 0, 100.0), nodes]).splitlines()[-3:] == [
        "| 32 nodes: workers | first_row_s |", "|---|---|", "| 4 | 2.5 |",
    ]  # fmt: skip


def test_the_picture_has_a_line_for_each_work_with_rates_and_one_for_the_ideal() -> None:
    runs = [
        of(1, 0, 100.0),
        of(4, 0, 300.0),
        of(4, 1, 900.0, correct=False),
        ScaleRun("32 nodes", 4, 0, {"memory_mb": 9.0}),
    ]
    drawn = picture(runs)
    assert drawn.count("<polyline") == 2
    assert ">A: 3<" in drawn
    assert ">as many times: 4<" in drawn
