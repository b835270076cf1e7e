from collections import Counter

from bench.profile import OTHER, staged, table


def test_a_sample_counts_for_the_innermost_stage_that_names_one_of_its_functions() -> None:
    found = staged([("run (runtime.py:1);process_record (mine.py:2)", 3), ("run (runtime.py:1);sleep (x.py:1)", 2)])
    assert found == {"the user's callback": 3, "the loop, but for the above": 2}
    assert staged([("main (x.py:1)", 1)]) == {OTHER: 1}


def test_the_most_expensive_stage_is_first_and_small_ones_are_one_row() -> None:
    lines = table(Counter({"journal": 30, "gRPC": 168, "RocksDB": 1, "sinks": 1}), 10.0).splitlines()
    assert lines[2:] == [
        "| gRPC | 84% | 8.40 |", "| journal | 15% | 1.50 |", "| stages below 1 % | 1% | 0.10 |",
        "| **all** | | **10.00** |",
    ]  # fmt: skip
