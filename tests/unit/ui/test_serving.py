from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from millwheel.errors import SetupError
from millwheel.roots.root import RunInfo
from millwheel.ui import serving
from millwheel.ui.serving import UiSettings, bound, check, serve


@pytest.mark.parametrize(
    ("known", "host", "said"),
    [(False, "127.0.0.1", "is not the root of a run"), (True, "0.0.0.0", "without authentication")],
)
def test_what_cannot_be_served_is_a_sentence(
    known: bool, host: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunInfo("drawn", "1", "local:x", 1) if known else None
    monkeypatch.setattr(serving, "read_run", lambda root: run)
    orders: Any = None
    with pytest.raises(SetupError, match=said):
        serve(UiSettings(str(tmp_path), host), orders, lambda where: None)


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with bound("127.0.0.1", 0) as taken, pytest.raises(SetupError, match="choose another port"):
        check("127.0.0.1", taken.getsockname()[1])


def test_a_free_port_is_left_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    check("127.0.0.1", port)
    check("127.0.0.1", port)
