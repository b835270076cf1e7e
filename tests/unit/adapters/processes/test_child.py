"""A child process, its log, and its last words."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from millwheel.adapters.processes.address import listen_on
from millwheel.adapters.processes.child import Child, tail
from millwheel.errors import SetupError


def test_a_log_that_has_grown_large_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "big.log").write_bytes(b"x" * 16_000_001)
    child = Child([sys.executable, "-c", "import sys; sys.stderr.write('new')"], tmp_path / "big")
    assert child.wait(30) == 0
    assert (tmp_path / "big.log").read_text() == "new"
    assert (tmp_path / "big.log.1").stat().st_size == 16_000_001


def test_a_child_is_in_a_session_of_its_own_and_waiting_has_an_end(tmp_path: Path) -> None:
    child = Child([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "child")
    assert os.getsid(child.pid) == child.pid
    started = time.monotonic()
    assert child.wait(0.05) is None
    assert time.monotonic() - started < 50, "it did not wait for the end of the child"
    child.kill()
    assert child.wait(10) == -signal.SIGKILL
    child.terminate()  # nothing is left to signal


def test_the_tail_of_a_file_starts_at_the_end_at_most_8_kb_back(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("a" * 20_000 + "end")
    assert tail(file).endswith("aend")
    assert len(tail(file)) == 8_000
    assert tail(file, 20_000) == "end"
    assert tail(tmp_path / "none") == ""


# address.py: Where processes listen.


def test_auto_is_the_address_that_faces_zookeeper() -> None:
    assert listen_on("10.1.2.3", "x:1") == "10.1.2.3:0"
    assert listen_on("auto", "127.0.0.1:2181,other:2181/chroot") == "127.0.0.1:0"
    with pytest.raises(SetupError, match="no way to ZooKeeper"):
        listen_on("auto", "no-such-host.invalid:2181")
