from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from millwheel.connect.python_objects import forget_modules
from millwheel.control.savepoints.program import changed_parts, program_of
from millwheel.language.spec import load_pipeline

YAML = """
pipeline: p
ship: [words.txt, pipeline.pickle]
streams:
  a: {source: {files: {path: "in/*.jsonl", format: jsonl}}, timestamp: {field: at, unit: us}}
computations:
  c: {input: {a: {key: k}}, callback: "cb:C", output: o}
sinks:
  o: {files: {path: out}}
"""
CODE = """
from millwheel import Computation
FACTOR = 2
UNUSED = 1
def helped(n):
    return n * FACTOR
class C(Computation):
    def process_record(self, ctx, record):
        ctx.produce("o", helped(1))
"""


def program(
    folder: Path, yaml: str = YAML, code: str = CODE, words: str = "a", pickle: bytes = b"1"
) -> dict[str, str]:
    (folder / "p.yaml").write_text(yaml)
    (folder / "cb.py").write_text(code)
    # it fits any file of the same size and second
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    (folder / "words.txt").write_text(words)
    (folder / "pipeline.pickle").write_bytes(pickle)
    forget_modules()
    return program_of(load_pipeline(str(folder / "p.yaml"), {}))


def test_the_same_program_has_no_changed_parts_though_the_bytes_of_its_pickle_differ(
    tmp_path: Path,
) -> None:
    before, after = program(tmp_path), program(tmp_path, pickle=b"2")
    assert set(before) > {"its settings", "cb.py", "words.txt"}
    assert changed_parts(before, after) == []


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("FACTOR = 2", "FACTOR = 3", True),
        ("n * FACTOR", "n + FACTOR", True),
        ("helped(1)", "helped(2)", True),
        ("UNUSED = 1", "UNUSED = 2", False),
    ],
)
def test_code_that_the_pipeline_names_is_told_with_what_it_uses_and_no_more(
    tmp_path: Path, old: str, new: str, changed: bool
) -> None:
    before, after = program(tmp_path), program(tmp_path, code=CODE.replace(old, new))
    file, *named = changed_parts(before, after)
    assert file == "cb.py"
    assert [name.partition(" in Python ")[0] for name in named] == (["cb:C"] if changed else [])


@pytest.mark.parametrize("option", [", on_error: dead_letter", ", max_attempts: 5", ", shards: 3"])
def test_changed_settings_are_told(tmp_path: Path, option: str) -> None:
    after = program(tmp_path, YAML.replace("output: o", f"output: o{option}"))
    assert changed_parts(program(tmp_path), after) == ["its settings"]


def test_another_declared_file_is_told_by_its_name(tmp_path: Path) -> None:
    assert changed_parts(program(tmp_path), program(tmp_path, words="b")) == ["words.txt"]


def test_a_new_part_is_told_unless_only_python_is_another() -> None:
    assert changed_parts({"gone": "1"}, {"new.txt": "1", "cb:C in Python 3.99": "1"}) == ["new.txt"]


def test_digests_of_another_form_are_not_compared(tmp_path: Path) -> None:
    now = program(tmp_path)
    before = {name: digest for name, digest in now.items() if name != "form"}
    found = changed_parts(before, now)
    assert found == ["the form in which another version noted its settings"]
