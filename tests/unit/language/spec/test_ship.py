from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.connect.sinks.files import marker
from millwheel.control.roots import root
from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from millwheel.errors import PipelineError
from millwheel.language.spec import check_pipeline
from millwheel.language.spec.imports import OUTPUT_MARK, ROOT_MARK
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import Problems
from millwheel.language.spec.reading.reader import NodeReader
from millwheel.language.spec.ship import check_ship, files_to_ship

PIPELINE = """
pipeline: p
streams:
  hits:
    source: {files: {path: "hits.jsonl", format: jsonl}}
    timestamp: time
computations:
  count: {input: {hits: {key: path}}, callback: "counting:Count", options: {model: MODEL},
    output: out}
sinks:
  out: {files: {path: results, format: jsonl}}
"""
CODE = """
from pathlib import Path
from millwheel import Computation

class Count(Computation):
    \"\"\"words.txt is not read.\"\"\"
    def __init__(self, model):
        self.words = Path(__file__).parent / READS

    def process_record(self, ctx, record):
        pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "words.txt").write_text("")
    (tmp_path / "hits.jsonl").write_text("")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "more.txt").write_text("")
    return tmp_path


def checked(
    folder: Path, ship: str = "", reads: str = "'nothing'", model: str = "none"
) -> tuple[list[str], list[str]]:
    """Warnings, and the names of what would be shipped."""
    (folder / "counting.py").write_text(CODE.replace("READS", reads))
    (folder / "p.yaml").write_text(
        PIPELINE.replace("MODEL", model) + (f"ship: {ship}\n" if ship else "")
    )
    spec, warnings = check_pipeline(folder / "p.yaml", {}, {})
    return warnings, sorted(path.relative_to(folder).as_posix() for path in files_to_ship(spec))


def test_a_pipeline_takes_its_code_and_what_it_declares(folder: Path) -> None:
    assert checked(folder) == ([], ["counting.py"])
    assert checked(folder, "words.txt") == ([], ["counting.py", "words.txt"])
    assert checked(folder, "[data, '*.txt']") == ([], ["counting.py", "data/more.txt", "words.txt"])


@pytest.mark.parametrize(
    "reads", ["'words.txt'", "'data' / Path('x') / 'more.txt'", "'data/more.txt'"]
)
def test_code_that_names_a_file_beside_the_pipeline_is_told_to_declare_it(
    folder: Path, reads: str
) -> None:
    name = "words.txt" if "words" in reads else "data/more.txt"
    (warning,), _ = checked(folder, reads=reads)
    assert f"counting.py:8 names {name}" in warning
    assert f"ship: [{name}]" in warning
    assert checked(folder, f"[{name}]", reads)[0] == []


def test_options_that_name_a_file_beside_the_pipeline_are_told_so_too(folder: Path) -> None:
    (warning,), _ = checked(folder, model="words.txt")
    assert "counting:Count names words.txt" in warning


def test_schemas_of_formats_are_taken_along(folder: Path) -> None:
    (folder / "row.avsc").write_text('{"type": "record", "name": "R", "fields": []}')
    (folder / "p.yaml").write_text(
        PIPELINE.replace("MODEL", "none").replace(
            "path: results, format: jsonl", "path: results, format: {avro: {schema: row.avsc}}"
        )
    )
    (folder / "counting.py").write_text(CODE.replace("READS", "'nothing'"))
    spec, warnings = check_pipeline(folder / "p.yaml", {}, {})
    assert not warnings
    assert folder / "row.avsc" in files_to_ship(spec)


def test_options_of_sinks_that_name_a_file_are_told_so_unless_it_is_where_they_write(
    folder: Path,
) -> None:
    (folder / "ca.pem").write_text("")
    sink = SinkSpec(
        "out", "database", {"ca": "ca.pem", "path": str(folder / "words.txt")}, "p.yaml:9"
    )
    spec = PipelineSpec("p", (), (), (sink,), str(folder), str(folder / "p.yaml"))
    problems = Problems("p.yaml")
    check_ship(NodeReader(problems), spec, YamlNode({}, 1))
    (warning,) = problems.warnings
    assert warning.startswith("p.yaml:9: database of out names ca.pem")


def test_inputs_of_the_pipeline_are_no_files_that_its_code_lacks(folder: Path) -> None:
    assert checked(folder, reads="'hits.jsonl'")[0] == []


@pytest.mark.parametrize(
    ("ship", "complaint"),
    [
        ("nothing.txt", "there is no file 'nothing.txt'"),
        ("../x", "lies outside of the pipeline's folder"),
        ("/etc/passwd", "lies outside of the pipeline's folder"),
        ("{a: b}", "must be a list of files"),
        ("[1]", "must be text"),
        ("origin", "origin is the name of a file that MillWheel sends to each worker"),
    ],
)
def test_a_declaration_that_cannot_be_is_a_sentence(
    folder: Path, ship: str, complaint: str
) -> None:
    (folder / "origin").write_text("")
    with pytest.raises(PipelineError, match=complaint):
        checked(folder, ship)


def test_roots_and_results_are_known_by_what_lies_in_them() -> None:
    assert ROOT_MARK == root.IDENTITY
    assert f"{marker.HIDDEN}/{marker.MARKER}" == OUTPUT_MARK
