"""Modules of a pipeline's folder: whose code finds them, and what they never hide."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.spec.folder_modules import FolderFinder, lies_in
from millwheel.spec.loading import load_object


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
    library = folder_of(tmp_path, "site-packages", plugins="WHOSE = 'the library'", library="import plugins, tabnanny")
    here = folder_of(
        tmp_path, "a", mine="import plugins\nimport tabnanny", plugins="WHOSE = 'ours'", tabnanny="raise ValueError"
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


def test_a_folder_without_init_does_not_hide_a_package_and_what_only_the_pipeline_has_is_seen_by_all(
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
