"""Every number that tunes something has a reason, and stands on one page."""

from __future__ import annotations

from pathlib import Path

from tests import tuning


def test_every_number_says_why_it_is_what_it_is() -> None:
    assert not [f"{each.module}.{each.name}" for each in tuning.settings() if not each.reason]


def test_the_page_shows_what_the_code_has() -> None:
    text = tuning.PAGE.read_text(encoding="utf-8")
    assert text == tuning.page(text), "run `python -m tests.tuning`"


def test_what_is_named_as_fixed_is_there() -> None:
    names = {f"{each.module.partition('.')[2]}.{each.name}" for each in tuning.settings()}
    assert names >= tuning.SENTINELS


def test_numbers_are_found_with_their_units_and_reasons(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text('_A_S = 2.0  # so long\n_B = 3\n"""So many."""\nC_BYTES = 1 << 20\nD = f(1)\nE = "text"\n')
    found = [(each.name, each.unit, each.reason) for each in tuning._of("m", module)]
    assert found == [("_A_S", "s", "so long"), ("_B", "", "So many."), ("C_BYTES", "bytes", "")]
