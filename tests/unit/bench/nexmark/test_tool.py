from __future__ import annotations

from bench.nexmark.tool import table


def test_the_table_has_medians_and_the_mean_of_shares() -> None:
    lines = table({"q0": [90.0, 100.0, 2_000.0], "q2": [400.0]}, {"q0": [200.0], "q2": [200.0]})
    assert "| q0 | each bid, as it is | 100 (90 to 2,000) | 200 (200 to 200) | 0.50 |" in lines
    assert lines.splitlines()[-1].endswith("| 1.00 |"), "of 0.5 and 2"
