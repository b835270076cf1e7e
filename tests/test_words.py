"""Names in the package use the words of GLOSSARY.md, and none of those that its last table
replaces."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.sources import HOUSE, sources

OF_THE_WIRE = {"millwheel/adapters/grpc/node_reports.py", "millwheel/control/injector/wire.py"}
"""They fill and read the field ``place`` of a generated message."""


def replaced_words(glossary: str) -> set[str]:
    """The first column of the last table."""
    rows = re.findall(r"^\| (.+?) \|", glossary.rpartition("\n## ")[2], re.MULTILINE)
    return {word for row in rows[1:] for word in row.split(", ")}


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """Every name that a module defines or uses, with its line."""
    for node in ast.walk(ast.parse(source)):
        for field in ("id", "arg", "attr", "name", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield getattr(node, "lineno", 0), name


def parts_of(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()))


def test_no_name_has_a_word_that_the_glossary_replaces() -> None:
    words = replaced_words((HOUSE / "GLOSSARY.md").read_text(encoding="utf-8"))
    assert {"place", "dice"} <= words
    suspect = re.compile(
        "|".join(rf"(?<![a-z]){word}(?![a-z])|{word.capitalize()}" for word in sorted(words))
    )
    texts = {
        path.relative_to(HOUSE).as_posix(): path.read_text(encoding="utf-8") for path in sources()
    }
    found = [
        f"{path}:{line}: {name}"
        for path, text in texts.items()
        if path not in OF_THE_WIRE and suspect.search(text)
        for line, name in names_in(text)
        if parts_of(name) & words
    ]
    assert not found


def test_parts_of_names_are_found_in_either_case() -> None:
    found = {name for _, name in names_in("class BucketPlace: pass\nat.old_place = f(place=1)")}
    assert found == {"BucketPlace", "at", "old_place", "f", "place"}
    assert all("place" in parts_of(name) for name in found - {"at", "f"})
