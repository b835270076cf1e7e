from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from millwheel.cli import savepoint as module
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.stopping import STOP, StopRequest


def test_exactly_this_life_of_this_driver_is_asked_to_stop() -> None:
    joined: list[Any] = []
    coordination = SimpleNamespace(join=lambda *given: joined.append(given))
    run = SimpleNamespace(instance="i", driver_pid=7)
    for _ in range(2):
        module._ask_to_stop(cast("Any", run), cast("Any", coordination))
    (role, one, data), (_, other, _) = joined
    assert role == STOP
    assert one != other, "two that ask do not take each other's place"
    assert msgspec.json.decode(data, type=StopRequest) == StopRequest("i", 7)


def test_the_end_of_the_driver_is_awaited_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = [True, True, False]
    monkeypatch.setattr(module, "_LOOK_S", 0.0)
    monkeypatch.setattr(module, "is_driven", lambda root: alive.pop(0))
    module._await_end(Path("/root"), 9.0)
    assert alive == []
    monkeypatch.setattr(module, "is_driven", lambda root: True)
    with pytest.raises(UnavailableError, match="has not ended within 0 s"):
        module._await_end(Path("/root"), 0.0)


def test_a_run_that_ended_before_it_was_drained_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="has ended before it was drained"):
        module._report_drained(tmp_path, cast("Any", None))


def test_a_savepoint_is_a_value_for_other_programs(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123")
    shards = [SimpleNamespace(node=node) for node in ("n", "n", "m")]
    record = SimpleNamespace(name="s", taken="2026-01-01T00:00:00Z", held_ms=7, shards=shards)
    taken = module._taken(cast("Any", record), tmp_path)
    assert (taken.folder, taken.nodes, taken.shards, taken.bytes, taken.held_ms) == (str(tmp_path), 2, 3, 3, 7)
    assert "3 shards of 2 nodes" in module._words(cast("Any", record), tmp_path)
