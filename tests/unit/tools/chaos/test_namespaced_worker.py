from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import pytest

from millwheel.adapters.processes.interpreter import module_command
from millwheel.tools.chaos.namespaced_worker import command, main
from millwheel.tools.chaos.namespaces import HOSTS, PREFIX, address_of, host_of, namespace_of


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
