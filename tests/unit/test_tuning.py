"""Every number that tunes something has a reason, and stands on one page of the site."""

from __future__ import annotations

import re
from pathlib import Path

from tests import tuning

REPO = Path(__file__).parents[2]


def test_every_number_says_why_it_is_what_it_is() -> None:
    assert not [f"{each.module}.{each.name}" for each in tuning.settings() if not each.reason]


def test_the_page_has_a_row_for_each_number_and_its_links_lead_somewhere() -> None:
    page = tuning.page()
    rows = set(re.findall(r"^\| `([\w.]+)` \| `(\w+)` \|", page, re.MULTILINE))
    listed = [each for each in tuning.settings() if not tuning.is_fixed(each)]
    assert rows >= {(each.module.partition(".")[2], each.name) for each in listed}
    assert all(
        (REPO / "docs" / link).is_file() for link in re.findall(r"\]\(([\w.-]+\.md)\)", page)
    )


def test_what_is_named_as_fixed_is_there() -> None:
    names = {f"{each.module.partition('.')[2]}.{each.name}" for each in tuning.settings()}
    assert names >= tuning.SENTINELS


def test_numbers_are_found_with_their_units_and_reasons(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text(
        '_A_S = 2.0  # so long\n_B = 3\n"""So many."""\nC_BYTES = 1 << 20\nD = f(1)\nE = "text"\n'
    )
    found = [(each.name, each.unit, each.reason) for each in tuning._of("m", module)]
    assert found == [("_A_S", "s", "so long"), ("_B", "", "So many."), ("C_BYTES", "bytes", "")]
