from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.processes import output
from millwheel.processes.output import OutputPump


def append(logs: Path, slot: int, data: bytes) -> None:
    with open(logs / f"worker-{slot}.out", "ab") as file:
        file.write(data)


def test_whole_lines_are_passed_on_once(tmp_path: Path) -> None:
    pump = OutputPump(tmp_path)
    assert pump.take() == b""
    append(tmp_path, 0, b"a\nb")
    append(tmp_path, 1, b"x\n")
    assert pump.take() == b"a\nx\n"
    append(tmp_path, 0, b"c\n")
    assert pump.take() == b"bc\n"
    assert pump.take() == b""


def test_what_an_earlier_run_printed_is_not_printed_again(tmp_path: Path) -> None:
    append(tmp_path, 0, b"old\n")
    pump = OutputPump(tmp_path)
    append(tmp_path, 0, b"new\n")
    assert pump.take() == b"new\n"


def test_much_is_passed_on_bit_by_bit_and_a_line_without_end_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_READ_BYTES", 10)
    pump = OutputPump(tmp_path)
    append(tmp_path, 0, b"12345\n1234\n" + b"y" * 25 + b"\n")
    taken = []
    while data := pump.take():
        taken.append(data)
    assert b"".join(taken) == b"12345\n1234\n" + b"y" * 25 + b"\n"
    assert taken[0] == b"12345\n"


def test_the_disk_gets_back_what_was_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_PUNCH_BYTES", 1 << 20)
    pump = OutputPump(tmp_path)
    line = b"z" * 1023 + b"\n"
    for _ in range(4):
        append(tmp_path, 0, line * 1024)
        assert pump.take() == line * 1024
    append(tmp_path, 0, b"end\n")
    assert pump.take() == b"end\n"
    file = (tmp_path / "worker-0.out").stat()
    assert file.st_size == 4 * (1 << 20) + 4
    assert file.st_blocks * 512 < file.st_size  # on a file system that can
