"""Keys of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from millwheel.core.pipeline.spec import KeyKind, KeySpec
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


def extractor(*names: str, kind: KeyKind = KeyKind.FIELD, here: str = ".") -> Any:
    return load_extractor(KeySpec(kind, names), here)


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
