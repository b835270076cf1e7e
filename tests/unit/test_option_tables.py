"""The tables of options in docs/ say what the declarations say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millwheel.connect.built_in import LOOKUPS, SINKS, SOURCES
from millwheel.language.spec.parts.computation_fields import COMPUTATION
from tests import tuning
from tests.option_tables import PARTS, pages, table, with_tables

PAGES = list(pages())


@pytest.mark.parametrize(("path", "text"), PAGES, ids=[path.name for path, _ in PAGES])
def test_a_table_is_as_the_declarations_make_it(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "run: python -m tests.option_tables --write"


def test_every_kind_with_options_has_a_table_of_them() -> None:
    written = "".join(text for _, text in PAGES)
    rows = [row for known in (SOURCES, SINKS, LOOKUPS) for row in known.values()]
    forms = {form.__name__ for row in rows if (form := row.form()) is not None}
    assert {name for name in forms if name not in written} == {"StdoutOptions"}, "it has a sentence"


def test_every_field_of_a_computation_has_a_row() -> None:
    parts = [PARTS[name] for name in ("ALL", "CALLBACK", "WINDOWED", "OTHERS")]
    assert sorted(name for part in parts for name in part.fields) == sorted(COMPUTATION.fields)
    written = "".join(text for _, text in PAGES)
    assert all(f"<!-- options: {name} -->" in written for name in PARTS)


def test_a_field_has_its_default_and_its_choices() -> None:
    written = with_tables("<!-- options: ALL -->\n<!-- end of options -->\n", "pipeline.md")
    assert "| `delivery` | `exactly_once` | " in written
    assert ": `exactly_once`, `at_least_once` |" in written
    assert "| `input` | required | [streams, each with its key](#input) |" in written
    assert "| `shards` | two per worker | " in written


def test_structs_share_the_rows_that_are_equal() -> None:
    lines = table(["DeltaSinkOptions", "IcebergSinkOptions"]).splitlines()
    assert sum(line.startswith("| `flush` |") for line in lines) == 1
    assert any(line.startswith("| `path` (`delta`) | required |") for line in lines)
    assert any(line.startswith("| `catalog` (`iceberg`) | required |") for line in lines)


def test_a_page_links_to_itself_in_short() -> None:
    page = "<!-- options: CsvOptions -->\nold\n<!-- end of options -->\n"
    assert "old" not in with_tables(page, "x.md")
    assert "(formats.md#csv" in with_tables(page, "x.md")
    assert "(#csv" in with_tables(page, "formats.md")


# tuning.py: Every number that tunes something has a reason, and stands on one page of the site.

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
