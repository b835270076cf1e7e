"""Network namespaces of this machine: hosts hear each other, unless one is cut off, and nothing
stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from millwheel.adapters.processes.interpreter import module_command
from millwheel.errors import SetupError
from millwheel.tools.chaos.namespaced_worker import command, main
from millwheel.tools.chaos.namespaces import (
    HOSTS,
    PREFIX,
    Namespaces,
    address_of,
    host_of,
    namespace_of,
)

_PORT = 4711
_TRY = (
    "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])),"
    " timeout=float(sys.argv[3]))"
)
_SERVE = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
sys.stdout.write("ready\\n"); sys.stdout.flush()
while True: server.accept()[0].close()
"""


@pytest.fixture
def namespaces() -> Namespaces:
    made = Namespaces(2)
    try:
        with made:
            pass
    except SetupError as error:
        pytest.skip(f"no network namespaces here: {error}")
    return made


def reaches(prefix: str, slot: int, address: str, patience_s: float) -> bool:
    there = ["ip", "netns", "exec", namespace_of(prefix, slot), sys.executable, "-c", _TRY]
    done = subprocess.run(
        [*there, address, str(_PORT), str(patience_s)], capture_output=True, timeout=60
    )
    return done.returncode == 0


def test_one_that_is_cut_off_hears_nobody_until_it_is_joined_again(namespaces: Namespaces) -> None:
    outside = os.readlink("/proc/thread-self/ns/net")
    with namespaces:
        serve = [
            "ip",
            "netns",
            "exec",
            namespace_of(namespaces.prefix, 0),
            sys.executable,
            "-c",
            _SERVE,
        ]
        with subprocess.Popen(
            [*serve, address_of(0), str(_PORT)], stdout=subprocess.PIPE
        ) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == b"ready\n"
                assert reaches(namespaces.prefix, 1, address_of(0), 30)
                namespaces.cut(1)
                assert not reaches(namespaces.prefix, 1, address_of(0), 0.5)
                namespaces.reconnect(1)
                assert reaches(namespaces.prefix, 1, address_of(0), 30)
            finally:
                server.kill()
    assert not list(Path("/run/netns").glob(f"{namespaces.prefix}-*"))
    assert os.readlink("/proc/thread-self/ns/net") == outside


def test_nothing_stays_after_an_interruption(namespaces: Namespaces) -> None:
    with suppress(KeyboardInterrupt), namespaces:
        assert len(list(Path("/run/netns").glob(f"{namespaces.prefix}-*"))) == 3
        raise KeyboardInterrupt
    assert not list(Path("/run/netns").glob(f"{namespaces.prefix}-*"))


def test_without_root_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SetupError, match="need root"):
        Namespaces(2).__enter__()


def test_a_worker_serves_where_its_slot_is() -> None:
    given = ["--root", "r", "--slot", "1", "--listen", "10.213.0.1:0"]
    made = command(given, "mwchaos-7", 1)
    assert made[:4] == ["ip", "netns", "exec", "mwchaos-7-h1"]
    assert made[-6:] == ["--root", "r", "--slot", "1", "--listen", f"{address_of(1)}:0"]


# namespaced_worker.py


def test_a_worker_is_executed_in_the_namespace_of_its_host_and_serves_there() -> None:
    argv = command(["--slot", "3", "--listen", "127.0.0.1:0", "--root", "/r"], "mw", 1)
    assert argv[:4] == ["ip", "netns", "exec", namespace_of("mw", 1)]
    told = ("--slot", "3", "--listen", f"{address_of(1)}:0", "--root", "/r")
    assert argv[4:] == module_command("millwheel.engine.workers", told)


def test_hosts_have_namespaces_and_addresses_of_their_own() -> None:
    assert namespace_of("a", 1) != namespace_of("a", 2)
    assert namespace_of("a", 1) != namespace_of("b", 1)
    assert len({address_of(slot) for slot in range(20)}) == 20


def test_slots_are_dealt_to_hosts_and_a_worker_says_on_which_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [host_of(slot, 2) for slot in range(4)] == [0, 1, 0, 1]
    executed: list[Sequence[str]] = []
    monkeypatch.setattr(os, "execvp", lambda program, argv: executed.append(argv))
    monkeypatch.setattr(sys, "argv", ["m", "--slot", "5", "--listen", "127.0.0.1:0"])
    monkeypatch.setenv(PREFIX, "mw")
    monkeypatch.setenv(HOSTS, "3")
    monkeypatch.setenv("MILLWHEEL_HOST", "the machine")
    main()
    assert executed[0][3] == namespace_of("mw", 2)
    assert os.environ["MILLWHEEL_HOST"] == "h2"
