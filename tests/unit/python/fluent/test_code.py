"""Functions of a pipeline in Python, and the names by which workers find them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from millwheel.connect.python_objects import load_object
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from tests.unit.python.fluent.test_draft import one, small


def test_functions_are_found_by_their_own_name_or_by_that_of_their_computation(
    check: Any, tmp_path: Path
) -> None:
    text = (
        "def named(value): return 1\ndef make():\n    def nested(value): return 2\n    return"
        " nested\n"
    )
    text += (
        "hits.map(named)\nhits.map(lambda value: 3, name='by-lambda')\nhits.map(make(),"
        " name='nested')\n"
    )
    text += "hits.key_by(lambda value: 4).map(lambda value: 5, name='keyed')\n"
    spec = check(text)
    steps = [each.work.steps[0].function for each in spec.computations]
    assert steps == [
        "p:named",
        "p:p.code.by_lambda_map",
        "p:p.code.nested_map",
        "p:p.code.keyed_map",
    ]
    assert [load_object(name, str(tmp_path))(None) for name in steps] == [1, 3, 2, 5]
    key = spec.computations[3].inputs[0].key
    assert key == KeySpec(KeyKind.FUNCTION, ("p:p.code.keyed_key",))
    assert load_object(key.names[0], str(tmp_path))(None) == 4


def test_a_process_that_imports_the_file_again_finds_the_same_functions(
    check: Any, tmp_path: Path
) -> None:
    found = one(check, "hits.map(lambda value: value + 1, name='more')")
    code = "from millwheel.connect.python_objects import load_object as load; "
    code += f"print(load({found.work.steps[0].function!r}, '.')(41))"
    repository = str(Path(__file__).parents[4])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": repository},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "42", done.stderr


# code_lines.py: Mistakes are named with the line of the call.


def test_every_computation_knows_the_line_of_its_call(check: Any, tmp_path: Path) -> None:
    found = check("hits.map('x')\n\nhits.key_by('a').filter('y')\n").computations
    assert [each.where for each in found] == [f"{tmp_path}/p.py:5", f"{tmp_path}/p.py:7"]


def test_a_call_in_another_file_is_named_there(problems: Any, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text("def add(stream):\n    stream.map('x =', name='far')\n")
    (found,) = problems("from more import add\nadd(hits)\n")
    assert found.startswith("more.py:2: computations.far.map: column")


def test_a_pipeline_without_a_file_is_a_spec_too() -> None:
    pipeline, hits = small()
    hits.map(lambda value: value * 2, name="twice")
    (twice,) = pipeline.spec().computations
    assert load_object(twice.work.steps[0].function, "/nowhere")(21) == 42
    assert twice.where.startswith(f"{__file__}:")
