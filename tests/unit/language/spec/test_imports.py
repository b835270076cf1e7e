from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.language.spec.imports import OUTPUT_MARK, ROOT_MARK, files_below, imported_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def reached(folder: Path, *modules: str) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in imported_files(folder, modules))


@pytest.mark.parametrize(
    "line",
    [
        "import other",
        "import os, other as o",
        "from other import thing",
        "from other import *",
        "def f():\n    import other",
        "try:\n    import missing\nexcept ImportError:\n    import other",
        "import importlib\nother = importlib.import_module('other')",
        "other = __import__('other')",
    ],
)
def test_a_module_is_reached_however_it_is_imported(folder: Path, line: str) -> None:
    write(folder, first=line, other="import third", third="", stranger="")
    assert reached(folder, "first") == ["first.py", "other.py", "third.py"]


def test_modules_that_import_each_other_are_found_once(folder: Path) -> None:
    write(folder, a="import b", b="import a")
    assert reached(folder, "a") == ["a.py", "b.py"]


def test_a_package_is_taken_as_a_whole_with_all_that_it_imports(folder: Path) -> None:
    write(folder, a="from kit.parts import one", b="", c="")
    (folder / "kit" / "parts").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "plugin": "import c",
        "parts/__init__": "from .. import util",
        "util": "",
    }.items():
        (folder / "kit" / f"{name}.py").write_text(text)
    (folder / "kit" / "data.bin").write_bytes(b"")
    kit = ["kit/__init__.py", "kit/parts/__init__.py", "kit/plugin.py", "kit/util.py"]
    assert reached(folder, "a") == ["a.py", "c.py", *kit]


def test_a_folder_without_init_gives_the_modules_that_are_named(folder: Path) -> None:
    write(
        folder,
        a="from lib.deep import one, two",
        lib__deep__one="from . import three",
        lib__deep__two="",
    )
    write(folder, lib__deep__three="", lib__deep__four="")
    assert reached(folder, "a") == [
        "a.py",
        "lib/deep/one.py",
        "lib/deep/three.py",
        "lib/deep/two.py",
    ]


def test_names_that_lie_elsewhere_or_are_no_names_lead_nowhere(folder: Path) -> None:
    write(folder, a="import json, numpy, millwheel\n__import__('../b')\n__import__('')", b="")
    write(folder, millwheel__api="")
    assert reached(folder, "a", "side", "no.such") == ["a.py"]


def test_a_file_that_is_no_python_is_taken_for_its_importer_to_complain(folder: Path) -> None:
    write(folder, a="import b", b="def")
    assert reached(folder, "a") == ["a.py", "b.py"]


def test_roots_results_environments_and_hidden_files_are_not_below(folder: Path) -> None:
    for mark in (ROOT_MARK, OUTPUT_MARK, "pyvenv.cfg"):
        index = folder / mark.replace("/", "_").strip(".")
        (index / mark).parent.mkdir(parents=True)
        (index / mark).write_text("")
        (index / "x.py").write_text("")
    for name in (".git/x.py", "__pycache__/x.py", "kept/x.py", ".hidden"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    assert [path.relative_to(folder).as_posix() for path in files_below(folder)] == ["kept/x.py"]
