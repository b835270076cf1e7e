from __future__ import annotations

import sys

from millwheel.chaos.namespaced_worker import command
from millwheel.chaos.namespaces import address_of, namespace_of


def test_a_worker_is_executed_in_the_namespace_of_its_slot_and_serves_on_the_address_there() -> None:
    argv = command(["--slot", "3", "--listen", "127.0.0.1:0", "--root", "/r"], "mw")
    assert argv[:4] == ["ip", "netns", "exec", namespace_of("mw", 3)]
    assert argv[4:7] == [sys.executable, "-m", "millwheel.workers"]
    assert argv[7:] == ["--slot", "3", "--listen", f"{address_of(3)}:0", "--root", "/r"]


def test_slots_have_namespaces_and_addresses_of_their_own() -> None:
    assert namespace_of("a", 1) != namespace_of("a", 2)
    assert namespace_of("a", 1) != namespace_of("b", 1)
    assert len({address_of(slot) for slot in range(20)}) == 20
