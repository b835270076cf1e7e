"""Where tests with marks lie, so that `make test-slow` looks through those folders only."""

from __future__ import annotations

import re
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
TESTS = HOUSE / "tests"


def marked(mark: str) -> set[Path]:
    """The test files with a mark."""
    paths = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    return {
        path.relative_to(HOUSE)
        for path in paths
        if f"pytest.mark.{mark}" in path.read_text(encoding="utf-8")
    }


def test_what_runs_alone_lies_where_it_is_looked_for() -> None:
    assert {path.parent for path in marked("alone")} == {Path("tests/slow")}


def test_what_takes_long_is_slow_too() -> None:
    assert marked("long") <= marked("slow"), "or `make test-fast` runs it"


def test_what_is_slow_lies_where_it_is_looked_for() -> None:
    found = re.search(
        r"^SLOW := (.+)$", (HOUSE / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found
    places = {Path(name) for name in found[1].split()}
    assert marked("slow")
    assert not {path for path in marked("slow") if not places & {path, *path.parents}}
    assert not {
        place
        for place in places
        if not any(place in {path, *path.parents} for path in marked("slow"))
    }
