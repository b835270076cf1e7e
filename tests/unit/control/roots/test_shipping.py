from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from millwheel.adapters.spaces.files import PosixFiles
from millwheel.connect.python_objects import load_object
from millwheel.connect.sinks.files.marker import claim
from millwheel.control.roots import shipping
from millwheel.control.roots.root import IDENTITY
from millwheel.control.roots.shipping import load_shipped
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.errors import PipelineError, SetupError
from millwheel.language.spec import load_pipeline, resolve_params

PIPELINE = """
pipeline: p
streams:
  hits:
    source: {files: {path: "${input}", format: jsonl}}
    timestamp: time
computations:
  count:
    input: {hits: {key: path}}
    callback: counting:Count
    options: {limit: "${LIMIT_OF_TEST}"}
    output: out
sinks:
  out: {files: {path: results, format: jsonl}}
"""
CODE = """
from helpers.numbers import ONE
from millwheel import Computation

class Count(Computation):
    def __init__(self, limit):
        self.limit = int(limit) + ONE

    def process_record(self, ctx, record):
        pass
"""


def ship(pipeline: str | Path, params: dict[str, str], root: Path) -> Path:
    """As the driver does, in the folder /."""
    spec = load_pipeline(pipeline, resolve_params(str(pipeline), params, os.environ, "/"))
    return shipping.ship(pipeline, params, root, spec)


def names_in(target: Path) -> list[str]:
    return sorted(
        path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()
    )


OURS = ["origin", "params.json", "pipeline.yaml"]


def test_what_is_imported_travels_and_nothing_else(folder: Path) -> None:
    target = ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    assert names_in(target) == ["counting.py", "helpers/__init__.py", "helpers/numbers.py", *OURS]
    assert json.loads((target / "params.json").read_text()) == {
        "input": "/in",
        "LIMIT_OF_TEST": "41",
    }


def test_what_is_declared_travels_too(folder: Path) -> None:
    (folder / "models").mkdir()
    (folder / "models" / "a.json").write_bytes(b"{}" * 1_000_000)
    (folder / "plug.py").write_text("import plugged")
    (folder / "plugged.py").write_text("")
    (folder / "mine.yaml").write_text(PIPELINE + "ship: [words.txt, 'models/*.json', plug.py]\n")
    target = ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    imported = ["counting.py", "helpers/__init__.py", "helpers/numbers.py", "plug.py", "plugged.py"]
    assert names_in(target) == sorted([*imported, *OURS, "models/a.json", "words.txt"])


def test_runs_whose_roots_and_results_lie_beside_the_pipeline_ship_the_same_each_time(
    folder: Path,
) -> None:
    (folder / "mine.yaml").write_text(PIPELINE + "ship: ['**/*.txt', '**/*.py']\n")
    shipped = []
    for run in ("one", "two", "three"):
        root = folder / run
        root.mkdir()
        (root / IDENTITY).write_text("{}")
        shipped.append(names_in(ship(folder / "mine.yaml", {"input": "/in"}, root)))
        results = folder / "results" / run
        claim(PosixFiles(), str(results), run)
        (results / "notes.txt").write_bytes(b"x" * shipping.TOTAL_LIMIT_BYTES)
    assert shipped[0] == shipped[1] == shipped[2]


def test_a_later_run_replaces_the_code(folder: Path) -> None:
    ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    (folder / "counting.py").write_text(CODE.replace("from helpers.numbers import ONE", "ONE = 2"))
    target = ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    assert names_in(target) == ["counting.py", *OURS]
    assert "ONE = 2" in (target / "counting.py").read_text()
    assert not (folder / "root" / ".pipeline").exists()


def test_more_than_each_worker_should_get_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "TOTAL_LIMIT_BYTES", 100)
    with pytest.raises(SetupError, match=r"the largest file is counting\.py"):
        ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")


def test_a_worker_that_misses_a_file_is_told_to_declare_it(folder: Path) -> None:
    (folder / "counting.py").write_text(
        CODE
        + "from pathlib import Path\nWORDS = (Path(__file__).parent / 'words.txt').read_text()\n"
    )
    ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    with pytest.raises(PipelineError, match=r"declare it \(ship: \[words\.txt\]\)"):
        load_shipped(str(folder / "root"))


PYTHON = """
from millwheel import FileSink, FileSource, Pipeline, param
from helpers.numbers import ONE

other = Pipeline("other")
mine = Pipeline("mine")
hits = mine.read("hits", FileSource("data/*.jsonl", "jsonl"), timestamp="time",
  max_delay=param("LIMIT_OF_TEST"))
hits.map(lambda value: value + ONE, name="more").write(FileSink(param("out")))
"""


def test_a_pipeline_in_python_keeps_its_name_and_finds_its_functions(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "visits.py").write_text(PYTHON)
    (folder / "pipeline.yaml").write_text("pipeline: another")
    monkeypatch.setenv("LIMIT_OF_TEST", "41s")
    target = ship(f"{folder}/visits.py:mine", {"out": "/out"}, folder / "root")
    assert json.loads((target / "params.json").read_text()) == {
        "out": "/out",
        "LIMIT_OF_TEST": "41s",
    }
    monkeypatch.delenv("LIMIT_OF_TEST")
    (folder / "visits.py").unlink()
    spec = load_shipped(str(folder / "root"))
    assert (spec.name, spec.folder, spec.streams[0].max_delay_us) == (
        "mine",
        str(target),
        41_000_000,
    )
    assert spec.streams[0].source is not None
    assert spec.streams[0].source.options["path"] == str(folder / "data" / "*.jsonl")
    assert load_object(spec.computations[0].work.steps[0].function, spec.folder)(41) == 42


def test_a_root_may_get_a_pipeline_in_the_other_form(folder: Path) -> None:
    (folder / "visits.py").write_text(PYTHON)
    ship(f"{folder}/visits.py:mine", {"out": "/out", "LIMIT_OF_TEST": "1s"}, folder / "root")
    ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    assert load_shipped(str(folder / "root")).name == "p"


def test_a_pipeline_in_python_declares_files_as_yaml_does(folder: Path) -> None:
    (folder / "visits.py").write_text(
        PYTHON.replace('Pipeline("mine")', 'Pipeline("mine", ship=["words.txt"])')
    )
    target = ship(
        f"{folder}/visits.py:mine", {"out": "/out", "LIMIT_OF_TEST": "1s"}, folder / "root"
    )
    assert names_in(target) == sorted(
        ["entry", "helpers/__init__.py", "helpers/numbers.py", *OURS[:2], "visits.py", "words.txt"]
    )


# A pipeline that was shipped, as the processes of the run load it.


def test_a_worker_elsewhere_loads_what_the_driver_saw(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    monkeypatch.delenv("LIMIT_OF_TEST")
    spec = load_shipped(str(folder / "root"))
    assert spec.computations[0].called.options == {"limit": 41}
    assert [sink.stream for sink in spec.sinks] == ["out", DEAD_LETTERS]
    assert spec.sinks[1].options["path"] == str(folder / "root" / DEAD_LETTERS)


def test_a_root_that_nobody_shipped_to_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="holds no pipeline"):
        load_shipped(str(tmp_path))
