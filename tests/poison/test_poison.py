"""No value, exception or object ends a run, vanishes, or changes the rows of others; the table of
the docs is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.poison import matrix
from tests.poison.places import Place, places
from tests.poison.sweep import poisons, run, wrong

ALL = places()
SAMPLE = 12


@pytest.mark.parametrize("place", ALL[::SAMPLE], ids=lambda place: place.name)
def test_poison_becomes_dead_letters_and_changes_nothing_else(place: Place, tmp_path: Path) -> None:
    assert not wrong(place, poisons(place), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        each if number % 3 == 1 else pytest.param(each, marks=pytest.mark.long)
        for number, each in enumerate(ALL)
        if number % SAMPLE
    ],
    ids=lambda place: place.name,
)
def test_poison_in_all_other_places_too(place: Place, tmp_path: Path) -> None:
    """Without crashes and the comparison with rows, which the sample has."""
    found = run(place, poisons(place), tmp_path)
    assert matrix.row(place, found) == matrix.written()[matrix.shown(place)]


def test_the_table_of_the_docs_has_every_place() -> None:
    assert list(matrix.written()) == [matrix.shown(place) for place in ALL]
