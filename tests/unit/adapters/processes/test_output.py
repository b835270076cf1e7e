from __future__ import annotations

import os
from pathlib import Path

import pytest

from millwheel.adapters.processes import output
from millwheel.adapters.processes.output import OutputPump, rotate


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


def test_what_a_worker_moves_aside_is_passed_on_in_its_order(tmp_path: Path) -> None:
    pump = OutputPump(tmp_path)
    out = tmp_path / "worker-0.out"
    said, passed = b"", b""
    with open(out, "ab", buffering=0) as first:
        descriptor = first.fileno()
        for number in range(2_000):
            line = b"%d\n" % number
            said += line
            os.write(descriptor, line[:2])
            rotate(descriptor, out, limit=100)
            os.write(descriptor, line[2:])
            if number % 7 == 0:
                passed += pump.take()
        assert sum(file.stat().st_size for file in tmp_path.glob("worker-*")) < 1_000
    while data := pump.take():
        passed += data
    assert passed == said


def test_what_was_not_passed_on_is_not_replaced(tmp_path: Path) -> None:
    OutputPump(tmp_path)
    out = tmp_path / "worker-0.out"
    with open(out, "ab", buffering=0) as first:
        os.write(first.fileno(), b"x" * 10)
        assert rotate(first.fileno(), out, limit=5)
        os.write(first.fileno(), b"y" * 10)
        assert not rotate(first.fileno(), out, limit=5)
    assert (tmp_path / "worker-0.out.1").read_bytes() == b"x" * 10


def test_a_large_log_is_moved_aside_while_its_process_lives(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    with open(log, "ab", buffering=0) as file:
        os.write(file.fileno(), b"1" * 11)
        assert rotate(file.fileno(), log, limit=10)
        os.write(file.fileno(), b"2" * 10)
        assert not rotate(file.fileno(), log, limit=10)
        os.write(file.fileno(), b"2")
        assert rotate(file.fileno(), log, limit=10)
        os.write(file.fileno(), b"3")
    assert log.read_bytes() == b"3"
    assert (tmp_path / "worker-0.log.1").read_bytes() == b"2" * 11


def test_output_that_no_driver_passes_on_is_bounded_too(tmp_path: Path) -> None:
    out = tmp_path / "worker-0.out"
    with open(out, "ab", buffering=0) as file:
        for _ in range(50):
            os.write(file.fileno(), b"x" * 11)
            rotate(file.fileno(), out, limit=10)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 22
