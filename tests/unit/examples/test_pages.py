"""The pages show the examples that tests run."""

from __future__ import annotations

from pathlib import Path

import pytest

REPO = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("page", "example"),
    [("objects.md", "objects/clicks.yaml"), ("tables.md", "tables/clicks.yaml")],
)
def test_a_page_has_the_example_as_it_is(page: str, example: str) -> None:
    # the first line is for editors
    _, _, text = (REPO / "examples" / example).read_text().partition("\n")
    assert text in (REPO / "docs" / page).read_text()
