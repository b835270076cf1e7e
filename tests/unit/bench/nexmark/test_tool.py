from __future__ import annotations

from pathlib import Path

import pytest

from bench.nexmark.kept import Kept
from bench.nexmark.kills import line
from bench.nexmark.tool import check_number, lines_in, table


def test_the_table_has_medians_and_the_mean_of_ratios() -> None:
    lines = table(
        {
            "millwheel": {"q0": [90.0, 100.0, 2_000.0], "q2": [400.0]},
            "flink": {"q0": [50.0], "q2": [50.0]},
            "duckdb": {"q0": [200.0], "q2": [200.0]},
        }
    ).splitlines()
    ours, flink, duckdb = "100 (90 to 2,000)", "50 (50 to 50)", "200 (200 to 200)"
    assert lines[2] == f"| q0 | each bid, as it is | {ours} | {flink} | 2.00 | {duckdb} | 0.50 |"
    assert lines[-1] == "| all | geometric mean | | | 4.00 | | 1.00 |"


def test_a_query_that_another_system_does_not_have_stands_alone() -> None:
    rates = {"millwheel": {"q0": [4.0], "q6": [3.0]}, "flink": {"q0": [2.0], "q6": []}}
    *_, q0, q6, means = table(rates).splitlines()
    assert q0.endswith("| 4 (4 to 4) | 2 (2 to 2) | 2.00 |")
    assert q6.endswith("| 3 (3 to 3) |  |  |")
    assert means.endswith("| 2.00 |")


def test_the_rows_of_spark_are_counted(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "part-0.json").write_text("{}\n{}\n")
    (tmp_path / "done").write_text("")
    assert lines_in(tmp_path) == 2
    check_number("q0", 2, 2)
    check_number("q8", 1, 2)  # of windows the last stay open
    for name, found in (("q0", 1), ("q0", 3), ("q8", 3)):
        with pytest.raises(SystemExit, match=f"{found} rows in place of 2"):
            check_number(name, found, 2)


# kept.py


def test_a_line_tells_rate_and_memory() -> None:
    assert str(Kept(100_000, 42_131.4, 310.2, 420.7, 150.0)) == (
        "100,000 auctions kept: 42,131 rows/s; a worker has 310 MB behind the auctions and 421 MB"
        " behind the bids, the root 150 MB"
    )


# kills.py


def test_a_line_tells_which_run_of_a_query_is_wrong_and_how() -> None:
    right, wrong = (7_000, 0, ""), (7_000, 2, "missing: (1, 2)")
    assert line("q0", 3, [right, right]) == "q0, 3 faults: 7,000 rows, all right"
    told = "q0, 3 faults: chaos: 2 of 7000 rows are wrong; missing: (1, 2)"
    assert line("q0", 3, [right, wrong]) == told
