from __future__ import annotations

import io
import json
import socket
from pathlib import Path

import pytest
from rich.console import Console

from millwheel.errors import SetupError
from millwheel.tools.cli import doctor as command
from millwheel.tools.cli.doctor import (
    BAD,
    GOOD,
    NOTE,
    Diagnosis,
    disk,
    doctor,
    executors,
    java,
    permissions,
    reach,
)


def test_a_machine_is_examined_and_left_as_it_was(tmp_path: Path) -> None:
    said = io.StringIO()
    assert (
        doctor(str(tmp_path / "new" / "root"), "", "", False, Console(file=said, width=1_000)) == 0
    )
    lines = said.getvalue().splitlines()
    checks = ["Python", "extras", "Java", "ports", "clock", "limits", "permissions", "disk"]
    assert [line.split()[1] for line in lines] == checks
    assert list(tmp_path.iterdir()) == []


def test_as_json_it_is_a_list_of_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(command, "findings", lambda *given: [Diagnosis("disk", BAD, "it is full")])
    assert doctor(str(tmp_path), "", "", True, Console()) == 1
    assert json.loads(capsysbinary.readouterr().out) == [
        {"check": "disk", "verdict": "bad", "words": "it is full"}
    ]


def test_java_is_needed_for_spark_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise SetupError("No Java 17 or newer was found")

    monkeypatch.setattr(command, "find_java", none)
    assert (java(True).verdict, java(False).verdict) == (BAD, NOTE)


def test_a_folder_that_cannot_be_written_is_bad(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = permissions(str(tmp_path / "file" / "root"))
    assert found.verdict == BAD
    assert "file" in found.words


def test_a_slow_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_sync_times", lambda folder: iter([0.02, 0.5, 0.02]))
    found = disk(str(tmp_path / "not" / "there"))
    assert found.verdict == NOTE
    assert found.words.startswith("a sync takes 20.0 ms, at worst 500.0")
    monkeypatch.setattr(command, "_sync_times", lambda folder: iter([0.001]))
    assert disk(str(tmp_path)).verdict == GOOD


def test_a_server_is_reached_or_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert reach(f"127.0.0.1:{port},other:1/chroot").verdict == GOOD
    assert reach(f"127.0.0.1:{port}/chroot").verdict == BAD
    assert reach("nothing").verdict == BAD


def test_the_python_of_executors_must_be_ours_with_all_packages() -> None:
    import platform

    ours = platform.python_version()
    assert executors("local[1]", lambda master: [("m", ours, "")]).verdict == GOOD
    assert "2.7.1 on m" in executors("local[1]", lambda master: [("m", "2.7.1", "")]).words
    assert "lacks grpc" in executors("local[1]", lambda master: [("m", ours, "grpc")]).words

    def fails(master: str) -> list[tuple[str, str, str]]:
        raise RuntimeError("no such master\nat line 7")

    found = executors("local[1]", fails)
    assert (found.verdict, found.words) == (BAD, "local[1]: no such master")
