from __future__ import annotations

import io
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from rich.console import Console

from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.members import STOP, StopRequest
from millwheel.launch.progress.summary import Summary
from millwheel.tools.cli.change import savepoint as module


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
        module._drained(tmp_path)


def test_a_savepoint_is_a_value_for_other_programs(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123")
    shards = [SimpleNamespace(node=node) for node in ("n", "n", "m")]
    record = SimpleNamespace(name="s", taken="2026-01-01T00:00:00Z", held_ms=7, shards=shards)
    taken = module._taken(cast("Any", record), tmp_path)
    assert (taken.folder, taken.nodes, taken.shards, taken.bytes, taken.held_ms) == (
        str(tmp_path),
        2,
        3,
        3,
        7,
    )
    assert "3 shards of 2 nodes" in module._words(taken)


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A run that ends at once, however it is asked to."""
    record = SimpleNamespace(
        name="s", taken="2026-01-01T00:00:00Z", held_ms=7, shards=[SimpleNamespace(node="n")]
    )

    @contextmanager
    def entered(result: Any = None) -> Any:
        yield result

    wanted = SimpleNamespace(folder=tmp_path / "saved")
    monkeypatch.setattr(module, "chosen_root", Path)
    monkeypatch.setattr(module, "attach", lambda root: None)
    monkeypatch.setattr(module, "connected", entered)
    monkeypatch.setattr(module, "taken", lambda *_: entered(record))
    monkeypatch.setattr(module, "sources_ended", lambda *_: entered())
    monkeypatch.setattr(module, "load_shipped", lambda root: None)
    monkeypatch.setattr(module, "_requested", lambda *_: wanted)
    monkeypatch.setattr(
        module, "read_completed", lambda root: msgspec.to_builtins(Summary(2, 2, 0, 0, 0, 1.0, 2.0))
    )
    for name in ("_ask_to_stop", "_await_end", "note_saved"):
        monkeypatch.setattr(module, name, lambda *_: None)
    return tmp_path


@pytest.mark.parametrize("ending", list(module.Ending))
def test_a_stop_is_one_object_for_other_programs(
    ending: module.Ending, stopping: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    said = io.StringIO()
    module.stop(str(stopping), ending, "saved", 9.0, Console(file=said), as_json=True)
    stopped = msgspec.json.decode(capfdbinary.readouterr().out, type=module.Stopped)
    assert (stopped.root, stopped.how, said.getvalue()) == (str(stopping), ending, "")
    assert (stopped.savepoint is not None) is (ending is module.Ending.SAVED)
    assert (stopped.summary is not None) is (ending is module.Ending.DRAINED)


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("AT_ONCE", "continues on the root"),
        ("DRAINED", "every window has fired"),
        ("SAVED", "To continue: millwheel"),
    ],
)
def test_a_stop_is_told_to_people(ending: str, words: str, stopping: Path) -> None:
    said = io.StringIO()
    module.stop(str(stopping), module.Ending[ending], "saved", 9.0, Console(file=said, width=300))
    assert words in said.getvalue()
    assert ("Savepoint" in said.getvalue()) is (ending == "SAVED")


def test_a_savepoint_is_told_even_if_the_run_does_not_end(
    stopping: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: Any) -> None:
        raise UnavailableError("has not ended")

    monkeypatch.setattr(module, "_await_end", late)
    said = io.StringIO()
    with pytest.raises(UnavailableError):
        module.stop(str(stopping), module.Ending.SAVED, "saved", 9.0, Console(file=said, width=300))
    assert f"Savepoint {stopping / 'saved'}" in said.getvalue()
