"""Objects by name, and the keys of records."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millwheel.core.pipeline.spec import KeyKind, KeySpec
from millwheel.errors import InvariantError, PipelineError, RecordError
from millwheel.spec.loading import load_extractor, load_object


class Hit(msgspec.Struct):
    path: str | None
    country: str = "FR"


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def folder(tmp_path: Path, name: str, **files: str) -> str:
    here = tmp_path / name
    here.mkdir()
    for file, text in files.items():
        (here / f"{file}.py").write_text(text)
    return str(here)


def test_the_pipelines_own_folder_comes_first_and_its_modules_see_each_other(tmp_path: Path) -> None:
    here = folder(
        tmp_path, "a", mine="from helper import ANSWER\nclass Box:\n    inner = ANSWER\n", helper="ANSWER = 42"
    )
    assert load_object("mine:Box.inner", here) == 42
    assert load_object("collections:OrderedDict", here).__name__ == "OrderedDict"


def test_two_pipelines_with_modules_of_the_same_name_do_not_see_each_others(tmp_path: Path) -> None:
    one = folder(tmp_path, "one", mine="import helper\nWHO = helper.WHO", helper="WHO = 1")
    two = folder(tmp_path, "two", mine="import helper\nWHO = helper.WHO", helper="WHO = 2")
    assert [load_object("mine:WHO", here) for here in (one, two, one)] == [1, 2, 1]
    assert [index for index in sys.path if index in (one, two)] == [one]


def test_modules_that_were_there_before_the_pipeline_stay(tmp_path: Path) -> None:
    one, two = folder(tmp_path, "one", early="X = 1", mine="X = 2"), folder(tmp_path, "two", other="X = 3")
    sys.path.insert(0, one)
    early = importlib.import_module("early")
    assert [load_object(name, here) for name, here in [("mine:X", one), ("other:X", two)]] == [2, 3]
    assert sys.modules["early"] is early
    assert one in sys.path
    assert "mine" not in sys.modules


def test_a_module_is_imported_once_per_folder(tmp_path: Path) -> None:
    here = folder(tmp_path, "a", mine="class Box: pass")
    assert load_object("mine:Box", here) is load_object("mine:Box", here)


@pytest.mark.parametrize("name", ["", "x", ":", "x:", ":y", "a b:c", "a:b:c", "os:../x", "1a:b", "a:b()"])
def test_a_name_of_another_form_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="write module:name"):
        load_object(name, str(tmp_path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import notthere", "ModuleNotFoundError: No module named 'notthere' (mine.py, line 1); install it"),
        ("x = 1\nx / 0", "ZeroDivisionError: division by zero (mine.py, line 2)"),
        ("def f(:", "SyntaxError: invalid syntax in mine.py, line 1"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("from mine import y", "ImportError"),
    ],
)
def test_what_fails_in_a_users_module_is_told_with_its_place(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError) as caught:
        load_object("mine:Box", folder(tmp_path, "a", mine=text))
    assert expected in str(caught.value)


def test_a_missing_module_or_name_is_told_with_what_there_is(tmp_path: Path) -> None:
    here = folder(tmp_path, "a", mine="class Box: pass\nclass Bag: pass\nimport os")
    with pytest.raises(
        PipelineError, match=r"there is no module 'min': neither min.py beside .* \(modules there: mine\)"
    ):
        load_object("min:Box", here)
    with pytest.raises(PipelineError, match="has no 'Boks' for 'mine:Boks'; it defines Bag, Box"):
        load_object("mine:Boks", here)


def test_a_file_with_the_name_of_a_module_of_pythons_is_refused(tmp_path: Path) -> None:
    here = folder(tmp_path, "a", json="X = 1", msgspec="X = 1")
    for name in ("json:X", "msgspec:X"):
        with pytest.raises(PipelineError, match="rename the file"):
            load_object(name, here)


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
@pytest.mark.parametrize("value", [{"country": "FR"}, {"country": "FR", "path": None}, Hit(None), "text", None, 3, []])
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
