import re
from collections import Counter

from bench.profile import OTHER, STAGES, staged, table
from tests.sources import sources


def test_a_sample_counts_for_the_innermost_stage_that_names_one_of_its_functions() -> None:
    found = staged(
        [
            ("run (runtime.py:1);process_record (mine.py:2)", 3),
            ("run (runtime.py:1);sleep (x.py:1)", 2),
        ]
    )
    assert found == {"the user's callback": 3, "the loop, but for the above": 2}
    assert staged([("main (x.py:1)", 1)]) == {OTHER: 1}


def test_the_most_expensive_stage_is_first_and_small_ones_are_one_row() -> None:
    lines = table(
        Counter({"journal": 30, "gRPC": 168, "RocksDB": 1, "sinks": 1}), 10.0
    ).splitlines()
    assert lines[2:] == [
        "| gRPC | 84% | 8.40 |", "| journal | 15% | 1.50 |", "| stages below 1 % | 1% | 0.10 |",
        "| **all** | | **10.00** |",
    ]  # fmt: skip


def test_stages_name_what_is_there() -> None:
    """A sample in a file that was renamed would count for another stage."""
    texts = {path.as_posix(): path.read_text(encoding="utf-8") for path in sources()}
    for name in (name for _, names in STAGES for name in names):
        is_file = any(f"/{name}" in path for path in texts)
        is_called = any(re.search(rf"\b{name}\(|\.{name}\b", text) for text in texts.values())
        assert is_file or is_called, name
