"""Keys of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from millwheel.core.model.keys import NULL
from millwheel.core.pipeline.keys import EVERYTHING, KeyKind, KeySpec
from millwheel.errors import InvariantError, PipelineError, RecordError
from millwheel.language.spec.key_extractors import load_extractor


class Hit(msgspec.Struct):
    path: str | None
    country: str = "FR"


def folder(tmp_path: Path, name: str, **files: str) -> str:
    here = tmp_path / name
    here.mkdir()
    for file, text in files.items():
        (here / f"{file}.py").write_text(text)
    return str(here)


def extractor(*names: str, kind: KeyKind = KeyKind.FIELD, here: str = ".", **more: Any) -> Any:
    return load_extractor(KeySpec(kind, names, **more), here)


def computed(*texts: str, nulls: bool = False) -> Any:
    names = tuple(f"x{index}" for index, _ in enumerate(texts))
    return extractor(*names, kind=KeyKind.EXPRESSIONS, texts=texts, nulls=nulls)


def test_keys_come_from_fields_of_dicts_and_of_objects(tmp_path: Path) -> None:
    hit = {"path": "/", "country": "DE"}
    assert extractor("path")(hit) == "/"
    assert extractor("path")(Hit("/")) == "/"
    assert extractor("path", "country", kind=KeyKind.FIELDS)(hit) == ("/", "DE")
    assert extractor("country", "path", kind=KeyKind.FIELDS)(Hit("/")) == ("FR", "/")
    assert extractor("path", kind=KeyKind.FIELDS)(hit) == ("/",)


@pytest.mark.parametrize("names", [("path",), ("country", "path")])
@pytest.mark.parametrize(
    "value", [{"country": "FR"}, {"country": "FR", "path": None}, Hit(None), "text", None, 3, []]
)
def test_a_missing_key_is_a_record_error_that_says_so(names: tuple[str, ...], value: Any) -> None:
    kind = KeyKind.FIELD if len(names) == 1 else KeyKind.FIELDS
    with pytest.raises(RecordError, match="missing key: "):
        extractor(*names, kind=kind)(value)


def test_a_function_of_the_users_is_taken_as_it_is(tmp_path: Path) -> None:
    here = folder(tmp_path, "a", mine="def key(value):\n    return value['a'] * 2\nN = 1")
    assert extractor("mine:key", kind=KeyKind.FUNCTION, here=here)({"a": 2}) == 4
    with pytest.raises(PipelineError, match="is a int, not a function"):
        extractor("mine:N", kind=KeyKind.FUNCTION, here=here)


def test_the_key_that_a_producer_gave_is_not_extracted() -> None:
    with pytest.raises(InvariantError):
        extractor(kind=KeyKind.RECORD)


def test_expressions_make_a_key_of_one_part_or_a_tuple() -> None:
    assert computed("lower(path)")({"path": "/A"}) == "/a"
    assert computed("lower(path)", "n // 2")({"path": "/A", "n": 5}) == ("/a", 2)
    assert computed("path")(Hit("/")) == "/"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("6 // n", "`6 // n` cannot be computed"),
        ("n + path", "`n + path` cannot be computed"),
        ("gone + 1", "gone"),
        ("null if n == 0 else n", "n` is null; the key of an input takes null_key: group"),
    ],
)
def test_an_expression_that_gives_no_key_is_an_error_of_the_record(text: str, why: str) -> None:
    with pytest.raises(RecordError) as told:
        computed(text)({"n": 0, "path": "/"})
    assert why in str(told.value)


def test_nulls_are_a_group_where_that_is_asked_for() -> None:
    fields = extractor("path", "country", kind=KeyKind.FIELDS, nulls=True)
    assert fields({"path": None, "country": "FR"}) == (NULL, "FR")
    assert extractor("path", nulls=True)(Hit(None)) == NULL
    assert extractor("path", nulls=True)({"path": ""}) == ""
    assert computed("null if n == 0 else n", nulls=True)({"n": 0}) == NULL


def test_a_field_that_is_missing_is_no_null() -> None:
    with pytest.raises(RecordError, match="path"):
        extractor("path", nulls=True)({})


@pytest.mark.parametrize("value", [[], ()])
def test_an_empty_list_is_not_taken_for_null(value: Any) -> None:
    with pytest.raises(RecordError, match="cannot be an empty list"):
        extractor("path", nulls=True)({"path": value})
    assert extractor("path")({"path": value}) == value


def test_everything_has_one_key() -> None:
    everything = extractor(kind=KeyKind.ALL)
    assert {everything(value) for value in ({}, None, 3)} == {EVERYTHING}
