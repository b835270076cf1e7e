from __future__ import annotations

import json
from pathlib import Path

import pytest

from millwheel.core.spec import DEAD_LETTERS
from millwheel.errors import SetupError
from millwheel.launch import shipping
from millwheel.launch.shipped import load_shipped
from millwheel.launch.shipping import ship
from millwheel.spec.loading import load_object

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / "helpers").mkdir(parents=True)
    (folder / "mine.yaml").write_text(PIPELINE)
    (folder / "counting.py").write_text(CODE)
    (folder / "helpers" / "__init__.py").write_text("")
    (folder / "helpers" / "numbers.py").write_text("ONE = 1\n")
    (folder / "words.txt").write_text("small")
    (folder / "huge.csv").write_bytes(b"x" * (shipping.DATA_FILE_LIMIT_BYTES + 1))
    (folder / "env").mkdir()
    (folder / "env" / "pyvenv.cfg").write_text("")
    (folder / "env" / "lib.py").write_text("")
    (folder / ".hidden.py").write_text("")
    (folder / "root").mkdir()
    (folder / "root" / "state.py").write_text("")
    monkeypatch.setenv("LIMIT_OF_TEST", "41")
    return folder


def test_code_and_small_files_travel_and_nothing_else(folder: Path) -> None:
    target = ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    names = sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
    assert names == [
        "counting.py",
        "helpers/__init__.py",
        "helpers/numbers.py",
        "mine.yaml",
        "origin",
        "params.json",
        "pipeline.yaml",
        "words.txt",
    ]
    assert json.loads((target / "params.json").read_text()) == {"input": "/in", "LIMIT_OF_TEST": "41"}


def test_a_worker_elsewhere_loads_what_the_driver_saw(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    monkeypatch.delenv("LIMIT_OF_TEST")
    spec = load_shipped(str(folder / "root"))
    assert spec.computations[0].options == {"limit": 41}
    assert [sink.stream for sink in spec.sinks] == ["out", DEAD_LETTERS]
    assert spec.sinks[1].options["path"] == str(folder / "root" / DEAD_LETTERS)


def test_a_later_run_replaces_the_code(folder: Path) -> None:
    ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    (folder / "words.txt").unlink()
    (folder / "counting.py").write_text(CODE + "# changed\n")
    target = ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    assert not (target / "words.txt").exists()
    assert "# changed" in (target / "counting.py").read_text()
    assert not (folder / "root" / ".pipeline").exists()


def test_a_folder_that_holds_everything_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "TOTAL_LIMIT_BYTES", 100)
    with pytest.raises(SetupError, match="folder of its own"):
        ship(folder / "mine.yaml", {}, folder / "root")


def test_a_root_that_nobody_shipped_to_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="holds no pipeline"):
        load_shipped(str(tmp_path))


PYTHON = """
from millwheel import FileSink, FileSource, Pipeline, param
from helpers.numbers import ONE

other = Pipeline("other")
mine = Pipeline("mine")
hits = mine.read("hits", FileSource("data/*.jsonl", "jsonl"), timestamp="time", max_delay=param("LIMIT_OF_TEST"))
hits.map(lambda value: value + ONE, name="more").write(FileSink(param("out")))
"""


def test_a_pipeline_in_python_keeps_its_name_and_finds_its_functions(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "visits.py").write_text(PYTHON)
    (folder / "pipeline.yaml").write_text("pipeline: another")
    monkeypatch.setenv("LIMIT_OF_TEST", "41s")
    target = ship(f"{folder}/visits.py:mine", {"out": "/out"}, folder / "root")
    assert json.loads((target / "params.json").read_text()) == {"out": "/out", "LIMIT_OF_TEST": "41s"}
    monkeypatch.delenv("LIMIT_OF_TEST")
    (folder / "visits.py").unlink()
    spec = load_shipped(str(folder / "root"))
    assert (spec.name, spec.folder, spec.streams[0].max_delay_us) == ("mine", str(target), 41_000_000)
    assert spec.streams[0].source is not None
    assert spec.streams[0].source.options["path"] == str(folder / "data" / "*.jsonl")
    assert load_object(spec.computations[0].steps[0].function, spec.folder)(41) == 42


def test_a_root_may_get_a_pipeline_in_the_other_form(folder: Path) -> None:
    (folder / "visits.py").write_text(PYTHON)
    ship(f"{folder}/visits.py:mine", {"out": "/out", "LIMIT_OF_TEST": "1s"}, folder / "root")
    ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    assert load_shipped(str(folder / "root")).name == "p"
