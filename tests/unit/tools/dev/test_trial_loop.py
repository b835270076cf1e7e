from __future__ import annotations

import io
import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from millwheel.tools.dev.trial_loop import again_at_each_save, folder_of, once, shown_once, stamps

YAML = """
pipeline: visits
streams: {visits: {source: {files: {path: "${input}", format: jsonl}}, timestamp: time}}
computations: {halves: {input: visits, map: "halving:half", output: halves}}
sinks: {halves: {files: {path: "${output}"}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "visits.yaml").write_text(YAML)
    write(tmp_path, "return value['n'] / 2", 1)
    (tmp_path / "visits.jsonl").write_text('{"time": 0, "n": 4}\n{"time": 1, "n": "four"}\n')
    return tmp_path / "visits.yaml"


def write(folder: Path, body: str, at_s: int) -> None:
    """The callback, with a time of its own: a file system may count in seconds."""
    (folder / "halving.py").write_text(f"def half(value):\n    {body}\n")
    os.utime(folder / "halving.py", (at_s, at_s))


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(by: Console) -> str:
    return by.file.getvalue()  # type: ignore[attr-defined]


def attempt(file: Path) -> partial[object]:
    return partial(once, str(file), {"input": str(file.parent / "visits.jsonl")}, {}, 10, 5)


def test_a_pipeline_is_tried_in_memory_and_errors_have_file_and_line(file: Path) -> None:
    out = console()
    assert shown_once(attempt(file), out)  # type: ignore[arg-type]
    assert "halves  1 record  halves" in said(out)
    assert "TypeError" in said(out)
    assert "halving.py:2" in said(out)
    assert not (file.parent / "no-value-for-output").exists()


def test_a_wrong_pipeline_is_sentences(file: Path) -> None:
    file.write_text(YAML.replace("input: visits,", "input: visit,"))
    out = console()
    assert not shown_once(attempt(file), out)  # type: ignore[arg-type]
    assert "visits.yaml:4" in said(out)
    assert "did you mean 'visits'" in said(out)


def test_it_is_tried_again_with_the_new_code_when_a_file_is_saved(file: Path) -> None:
    out, before = console(), stamps(folder_of(str(file)))

    def saved() -> None:
        while "Saved files" not in said(out):
            time.sleep(0.01)
        write(file.parent, "return value['n'] * 100", 2)

    writer = threading.Thread(target=saved)
    writer.start()
    again_at_each_save(folder_of(str(file)), attempt(file), out, rounds=2)  # type: ignore[arg-type]
    writer.join()
    assert "2.0" in said(out)
    assert "400" in said(out)
    assert stamps(file.parent) != before


def test_code_that_fails_outside_of_callbacks_is_a_line() -> None:
    out = console()

    def broken() -> None:
        raise ZeroDivisionError("odd")

    assert not shown_once(broken, out)  # type: ignore[arg-type]
    assert "test_trial_loop.py:" in said(out)
    assert "ZeroDivisionError: odd" in said(out)
