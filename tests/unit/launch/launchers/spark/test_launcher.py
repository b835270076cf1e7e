from __future__ import annotations

import pytest

from millwheel.launch.launchers.spark.launcher import waiting


@pytest.mark.parametrize(
    ("running", "executors", "told"),
    [
        (0, 0, "no machine of spark://h:1 has 1 core and 512m of memory free for another executor"),
        (1, 1, "Other applications may hold them"),
        (0, 1, "it has started 1 executors so far"),
        (1, 2, "its 2 executors have not begun their tasks yet"),
    ],
)
def test_what_spark_has_not_given_is_told_with_what_it_lacks(
    running: int, executors: int, told: str
) -> None:
    said = waiting(running, 2, executors, "spark://h:1", "1 core and 512m of memory")
    assert said.startswith(f"Spark has given {running} of 2 workers a core")
    assert told in said
