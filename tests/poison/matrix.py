"""The matrix of the sweep: of each place and group of values, how many were used and how many
became dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.poison.catalogue import TEXTS
from tests.poison.places import Place, places
from tests.poison.sweep import Found, names_it, poisons

FILE = Path(__file__).parent / "matrix.txt"
"""The table as it should be, a line for each place; the docs site shows it on the page of
docs/poison.md."""
PLACE = "<!-- matrix -->"
"""Where the page has the table."""
GROUPS = (*TEXTS, "objects", "exceptions")


def lettered(poison: Iterable[str], found: Found) -> set[str]:
    """The poison that became dead letters."""
    texts = [
        f"{json.dumps(each.get('value'), default=repr)}, p {each.get('key')} key"
        for each in found.letters
    ]
    return {name for name in poison if any(names_it(text, name) for text in texts)}


def row(place: Place, found: Found) -> str:
    """A line of the table: the place, and of each group the used values and the dead letters."""
    letters = lettered(poisons(place), found)
    cells = [_cell(names, letters) for names in _by_group(place).values()]
    return f"| {shown(place)} | " + " | ".join(cells) + " |"


def shown(place: Place) -> str:
    """The name of a place in the table."""
    return place.name.replace("|", "/")


def _by_group(place: Place) -> Mapping[str, Sequence[str]]:
    names = list(poisons(place))
    groups: dict[str, Sequence[str]] = dict.fromkeys(GROUPS, ())
    if place.slot == "object":
        return groups | {"objects": names}
    if place.slot == "raises":
        return groups | {"exceptions": names}
    return groups | {group: list(texts) for group, texts in TEXTS.items()}


def _cell(names: Sequence[str], letters: set[str]) -> str:
    bad = len(letters.intersection(names))
    return f"{len(names) - bad} + {bad}" if names else ""


def write(rows: Mapping[str, str]) -> None:
    """Replace the table."""
    FILE.write_text("\n".join(_lines(rows)) + "\n", encoding="utf-8")


def _lines(rows: Mapping[str, str]) -> Iterator[str]:
    yield "| place | " + " | ".join(GROUPS) + " |"
    yield "|---|" + "---|" * len(GROUPS)
    for place in places():
        yield rows[place.name]


def table() -> str:
    """The table as Markdown."""
    return FILE.read_text(encoding="utf-8")


def written() -> Mapping[str, str]:
    """The lines of the table by place."""
    return {line.split(" | ")[0].removeprefix("| "): line for line in table().splitlines()[2:]}
