"""Objects by name, and the keys of records."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.connect.python_objects import FolderFinder, lies_in, load_object
from millwheel.errors import PipelineError
from tests.unit.language.spec.test_key_extractors import folder


def test_the_pipelines_own_folder_comes_first_and_its_modules_see_each_other(
    tmp_path: Path,
) -> None:
    here = folder(
        tmp_path,
        "a",
        mine="from helper import ANSWER\nclass Box:\n    inner = ANSWER\n",
        helper="ANSWER = 42",
    )
    assert load_object("mine:Box.inner", here) == 42
    assert load_object("collections:OrderedDict", here).__name__ == "OrderedDict"


def test_two_pipelines_with_modules_of_the_same_name_do_not_see_each_others(tmp_path: Path) -> None:
    one = folder(tmp_path, "one", mine="import helper\nWHO = helper.WHO", helper="WHO = 1")
    two = folder(tmp_path, "two", mine="import helper\nWHO = helper.WHO", helper="WHO = 2")
    assert [load_object("mine:WHO", here) for here in (one, two, one)] == [1, 2, 1]
    assert [index for index in sys.path if index in (one, two)] == [one]


def test_modules_that_were_there_before_the_pipeline_stay(tmp_path: Path) -> None:
    one, two = (
        folder(tmp_path, "one", early="X = 1", mine="X = 2"),
        folder(tmp_path, "two", other="X = 3"),
    )
    sys.path.insert(0, one)
    early = importlib.import_module("early")
    assert [load_object(name, here) for name, here in [("mine:X", one), ("other:X", two)]] == [2, 3]
    assert sys.modules["early"] is early
    assert one in sys.path
    assert "mine" not in sys.modules


def test_a_module_is_imported_once_per_folder(tmp_path: Path) -> None:
    here = folder(tmp_path, "a", mine="class Box: pass")
    assert load_object("mine:Box", here) is load_object("mine:Box", here)


@pytest.mark.parametrize(
    "name", ["", "x", ":", "x:", ":y", "a b:c", "a:b:c", "os:../x", "1a:b", "a:b()"]
)
def test_a_name_of_another_form_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="write module:name"):
        load_object(name, str(tmp_path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "import notthere",
            "ModuleNotFoundError: No module named 'notthere' (mine.py, line 1); install it",
        ),
        (
            "import millwheel.flowing",
            "'millwheel.flowing' (mine.py, line 1); this version of MillWheel has no such module",
        ),
        ("x = 1\nx / 0", "ZeroDivisionError: division by zero (mine.py, line 2)"),
        ("def f(:", "SyntaxError: invalid syntax in mine.py, line 1"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("from mine import y", "ImportError"),
    ],
)
def test_what_fails_in_a_users_module_is_told_with_its_place(
    text: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError) as caught:
        load_object("mine:Box", folder(tmp_path, "a", mine=text))
    assert expected in str(caught.value)


def test_a_missing_module_or_name_is_told_with_what_there_is(tmp_path: Path) -> None:
    here = folder(tmp_path, "a", mine="class Box: pass\nclass Bag: pass\nimport os")
    with pytest.raises(
        PipelineError,
        match=r"there is no module 'min': neither min.py beside .* \(modules there: mine\)",
    ):
        load_object("min:Box", here)
    with pytest.raises(PipelineError, match="has no 'Boks' for 'mine:Boks'; it defines Bag, Box"):
        load_object("mine:Boks", here)


def test_a_file_with_the_name_of_a_module_of_pythons_is_refused(tmp_path: Path) -> None:
    here = folder(tmp_path, "a", json="X = 1", msgspec="X = 1")
    for name in ("json:X", "msgspec:X"):
        with pytest.raises(PipelineError, match="rename the file"):
            load_object(name, here)


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    path, finders, modules = list(sys.path), list(sys.meta_path), set(sys.modules)
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def folder_of(tmp_path: Path, name: str, **files: str) -> str:
    here = tmp_path / name
    here.mkdir()
    for file, text in files.items():
        (here / f"{file}.py").write_text(text)
    return str(here)


def test_a_file_beside_the_pipeline_never_stands_in_for_a_librarys_module(tmp_path: Path) -> None:
    library = folder_of(
        tmp_path,
        "site-packages",
        plugins="WHOSE = 'the library'",
        library="import plugins, tabnanny",
    )
    here = folder_of(
        tmp_path,
        "a",
        mine="import plugins\nimport tabnanny",
        plugins="WHOSE = 'ours'",
        tabnanny="raise ValueError",
    )
    sys.modules.pop("tabnanny", None)
    sys.path.append(library)
    try:
        assert load_object("mine:plugins.WHOSE", here) == "ours"
        assert load_object("mine:tabnanny", here).__file__ != f"{here}/tabnanny.py"
        del sys.modules["plugins"]
        assert importlib.import_module("library").plugins.WHOSE == "the library"
    finally:
        sys.path.remove(library)
        for name in ("plugins", "library", "tabnanny"):
            sys.modules.pop(name, None)


def test_a_folder_without_init_hides_no_package_and_the_pipelines_own_are_seen(
    tmp_path: Path,
) -> None:
    library = folder_of(tmp_path, "site-packages", shapes="X = 1")
    here = folder_of(tmp_path, "a", mine="import shapes", helper="X = 2")
    (Path(here) / "shapes").mkdir()
    sys.path.append(library)
    try:
        assert load_object("mine:shapes.X", here) == 1
        exec(compile("import helper", "<elsewhere>", "exec"), {})
        assert sys.modules["helper"].X == 2
    finally:
        sys.path.remove(library)
        sys.modules.pop("shapes")


def test_what_is_installed_is_undone_and_a_path_that_was_there_before_stays(tmp_path: Path) -> None:
    path, finders = list(sys.path), list(sys.meta_path)
    here = folder_of(tmp_path, "a", mine="X = 1")
    finder = FolderFinder(here, __file__)
    finder.install()
    assert (sys.path, sys.meta_path) == ([*path, here], [finder, *finders])
    finder.remove()
    assert (sys.path, sys.meta_path) == (path, finders)
    sys.path.append(here)
    finder = FolderFinder(here, __file__)
    finder.install()
    finder.remove()
    assert (sys.path, sys.meta_path) == ([*path, here], finders)


def test_only_the_loader_and_code_of_the_folder_find_its_modules(tmp_path: Path) -> None:
    here = folder_of(tmp_path, "a", mine="X = 1", queue="X = 2")
    [loader, other] = [FolderFinder(here, file) for file in (__file__, "elsewhere.py")]
    found = loader.find_spec("mine", None)
    assert found is not None
    assert found.origin == f"{here}/mine.py"
    assert loader.find_spec("queue", None) is None
    assert loader.find_spec("mine", [here]) is None
    assert other.find_spec("mine", None) is None


def test_an_environment_below_the_folder_is_no_part_of_it() -> None:
    assert lies_in("/a/b/mine.py", "/a")
    assert not lies_in("/a/env/lib/site-packages/mine.py", "/a")
    assert not lies_in("/ab/mine.py", "/a")
