from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.errors import SetupError
from millwheel.tools.cli.logs import LogEntry, entries_of, logs, merged_logs

TEXT = """it begins
2026-11-23 03:40:32,178 INFO Shard counts-0 is restored to commit 0.
2026-11-23 03:40:34,000 ERROR it failed
Traceback (most recent call last):
  File "a.py"
2026-11-23 03:40:36,000 WARNING more of counts_of_all
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker-0.log").write_text(TEXT)
    about = {
        "pipeline": "ads",
        "process": "worker-1",
        "logger": "mine",
        "node": "counts",
        "shard": "counts-1",
    }
    line = {
        "time": "2026-11-23T03:40:33.500000Z",
        "level": "DEBUG",
        "message": "hello",
        **about,
        "key_hash": "00ff",
    }
    (tmp_path / "logs" / "worker-1.log").write_text(json.dumps(line) + "\n{broken\n")
    yield tmp_path
    monkeypatch.undo()
    time.tzset()


def printed(capsys: pytest.CaptureFixture[str], root: Path, *given: object) -> list[str]:
    logs(str(root), *given)  # type: ignore[arg-type]
    return capsys.readouterr().out.splitlines()


def test_entries_of_both_formats_come_in_the_order_of_time(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, root, "", "debug", False) == [
        "2026-11-23 03:40:32.178Z INFO    worker-0  it begins",
        "2026-11-23 03:40:32.178Z INFO    worker-0  Shard counts-0 is restored to commit 0.",
        "2026-11-23 03:40:33.500Z DEBUG   worker-1  hello",
        "{broken [counts-1 key 00ff]",
        "2026-11-23 03:40:34.000Z ERROR   worker-0  it failed",
        "Traceback (most recent call last):",
        '  File "a.py"',
        "2026-11-23 03:40:36.000Z WARNING worker-0  more of counts_of_all",
    ]


def test_they_are_chosen_by_level_and_by_computation(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, root, "", "warning", False)
    assert [line.split()[2] for line in lines if "Z " in line] == ["ERROR", "WARNING"]
    found = [json.loads(line) for line in printed(capsys, root, "counts", "debug", True)]
    assert [(each["process"], each.get("shard", "")) for each in found] == [
        ("worker-0", ""),
        ("worker-1", "counts-1"),
    ]
    assert found[1]["key_hash"] == "00ff"


def test_a_level_that_is_none_and_a_root_without_logs_are_refused(
    root: Path, tmp_path: Path
) -> None:
    with pytest.raises(SetupError, match="no level loud"):
        logs(str(root), "", "loud", False)
    with pytest.raises(SetupError, match="no logs"):
        logs(str(tmp_path / "logs"), "", "info", False)


def test_what_a_process_said_without_any_time_has_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("worker: cannot run\n")
    (tmp_path / "b.log").write_text("")
    [entry] = merged_logs([tmp_path / "a.log", tmp_path / "b.log"])
    assert (entry.process, entry.message) == ("a", "worker: cannot run")
    assert not list(entries_of(tmp_path / "b.log"))


def test_a_computation_is_not_found_in_the_name_of_another() -> None:
    def about(message: str) -> bool:
        return LogEntry("t", "w", "INFO", message).concerns("counts")

    assert about("Shard counts-3 is there")
    assert about("counts: failed")
    assert not about("sink.counts-3 is there")
    assert not about("counts_of_all")
