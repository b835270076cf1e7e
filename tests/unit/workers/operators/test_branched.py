"""branch in the real runtime, against plain Python."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from millwheel.testing import PipelineHarness
from tests.unit.workers.operators.combinations import hit, hits, written

BRANCH = """
computations:
  sort:
    input: hits
    branch: {big: size > 5, small: size < 3, visits: "page == 'a'"}
    match: MATCH
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("combinations")


@pytest.mark.parametrize("match", ["first", "all"])
@given(records=hits)
@settings(max_examples=25, deadline=None)
def test_a_record_takes_the_branches_that_fit(folder: Path, match: str, records: list[dict[str, Any]]) -> None:
    tests = {"big": lambda r: r["size"] > 5, "small": lambda r: r["size"] < 3, "visits": lambda r: r["page"] == "a"}
    expected = defaultdict(list)
    for record in records:
        fits = [name for name, holds in tests.items() if holds(record)] or ["unmatched"]
        for name in fits if match == "all" else fits[:1]:
            expected[name].append(record)

    def text(record: dict[str, Any]) -> str:
        return str(sorted(record.items()))

    with PipelineHarness(written(folder / f"branch-{match}", BRANCH.replace("MATCH", match))) as harness:
        harness.push("hits", records)
        for name in tests:
            assert sorted(harness.read(name), key=text) == sorted(expected[name], key=text)
        assert harness.counters.get("unmatched", 0) == len(expected["unmatched"])


def test_otherwise_takes_what_no_other_branch_takes(folder: Path) -> None:
    rest = BRANCH.replace("visits: \"page == 'a'\"", "rest: otherwise").replace("MATCH", "all")
    with PipelineHarness(written(folder / "rest", rest)) as harness:
        harness.push("hits", [hit(1, size=9), hit(2, size=4), {"at": 3}])
        assert harness.read("big") == [hit(1, size=9)]
        assert harness.read("rest") == [hit(2, size=4)]
        assert [letter["value"] for letter in harness.read("dead_letters")] == [{"at": 3}]
        assert "unmatched" not in harness.counters
