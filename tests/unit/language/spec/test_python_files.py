"""Files with pipelines in Python: which of them is meant, and what is said when they cannot be
imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millwheel.errors import PipelineError
from millwheel.language.spec import PipelineFile, check_pipeline, resolve_params

ONE = """\
from millwheel import FileSource, Pipeline, param
{name} = Pipeline("{name}")
{name}.read("hits", FileSource(param("input"), "jsonl"), timestamp="ts", max_delay=param("delay",
  "1s"))
"""
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def run(text: str, name: str = "visits.py") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return run


def name_of(path: str) -> str:
    return check_pipeline(path, {"input": "x"}, {})[0].name


def wrong(path: str) -> str:
    with pytest.raises(PipelineError) as caught:
        check_pipeline(path, {"input": "x"}, {})
    return str(caught.value).replace(f"{Path(path).parent}/", "")


@pytest.mark.parametrize(
    ("given", "file", "variable"),
    [
        ("a/p.py", "a/p.py", ""),
        ("a/p.py:q", "a/p.py", "q"),
        ("p.yaml", "p.yaml", ""),
        ("a.py/p.yaml", "a.py/p.yaml", ""),
    ],
)
def test_a_variable_is_named_after_the_file(given: str, file: str, variable: str) -> None:
    assert PipelineFile.of(given) == PipelineFile(file, variable)


def test_the_only_pipeline_of_a_file_is_meant_under_however_many_names(write: Write) -> None:
    assert name_of(write(ONE.format(name="visits") + "again = visits\n")) == "visits"


def test_one_of_several_pipelines_is_named(write: Write) -> None:
    path = write(ONE.format(name="a") + ONE.format(name="b"))
    assert (name_of(f"{path}:a"), name_of(f"{path}:b")) == ("a", "b")
    assert (
        wrong(path) == "visits.py: the file defines 2 pipelines (a, b); say which one: visits.py:a"
    )
    assert wrong(f"{path}:c") == "visits.py: there is no pipeline 'c'. Pipelines in it: a, b"


def test_a_changed_file_is_imported_again(write: Write) -> None:
    assert name_of(write(ONE.format(name="first"))) == "first"
    assert name_of(write(ONE.format(name="second"))) == "second"


def test_functions_of_two_folders_with_a_file_of_the_same_name_are_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pipeline.py").write_text(ONE.format(name=name))
    for name in ("one", "two", "one"):
        assert name_of(str(tmp_path / name / "pipeline.py")) == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", "visits.py: the file defines no pipeline; assign one at its top level"),
        ("from millwheel import Pipeline\n", "visits.py: the file defines no pipeline"),
        ("\nx = (\n", "visits.py:2: this is not Python: "),
        ("\n1 / 0\n", "visits.py:2: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", "visits.py:2: SystemExit: 3"),
        (
            "\nimport nowhere_at_all\n",
            "visits.py:2: ModuleNotFoundError: No module named 'nowhere_at_all'; install it",
        ),
        (
            "from millwheel import *\nTumbling('1 minute')\n",
            "visits.py:2: '1 minute' is not a duration; write a number",
        ),
        (
            "from millwheel import *\nPipelin('x')\n",
            "visits.py:2: NameError: name 'Pipelin' is not defined",
        ),
        (
            "from millwheel import *\np = Pipeline('p')\np.read('a', timestam='t')\n",
            "visits.py:3: TypeError: Pipeline.read() got an unexpected keyword argument 'timestam'",
        ),
    ],
)
def test_what_goes_wrong_is_told_with_the_users_line(
    write: Write, text: str, expected: str
) -> None:
    assert wrong(write(text)).startswith(expected)


def test_a_file_that_python_cannot_import_or_that_is_not_there_is_told(
    write: Write, tmp_path: Path
) -> None:
    assert "letters, digits and _" in wrong(write("", "my-visits.py"))
    assert "has the name of another module" in wrong(write("", "json.py"))
    assert "cannot be read (No such file or directory)" in wrong(str(tmp_path / "none.py"))


def test_parameters_of_a_python_file_are_those_of_its_texts(write: Write) -> None:
    path = write(ONE.format(name="visits"))
    found = resolve_params(path, {"input": "x.jsonl"}, {"delay": "2s", "HOME": "/root"}, "/here")
    assert found == {"input": "/here/x.jsonl", "delay": "2s"}
