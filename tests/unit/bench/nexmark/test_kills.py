from __future__ import annotations

from bench.nexmark.kills import line


def test_a_line_tells_which_run_of_a_query_is_wrong_and_how() -> None:
    right, wrong = (7_000, 0, ""), (7_000, 2, "missing: (1, 2)")
    assert line("q0", 3, [right, right]) == "q0, 3 faults: 7,000 rows, all right"
    told = "q0, 3 faults: chaos: 2 of 7000 rows are wrong; missing: (1, 2)"
    assert line("q0", 3, [right, wrong]) == told
