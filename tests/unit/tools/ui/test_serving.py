from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.control.roots.root import RunInfo
from millwheel.errors import SetupError
from millwheel.tools.ui import serving
from millwheel.tools.ui.serving import UiSettings, serve


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
