"""Where the gateway refuses to serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.control.roots.root import RunInfo
from millwheel.errors import SetupError
from millwheel.tools.gateway import serving
from millwheel.tools.gateway.serving import ServeSettings, serve
from tests.unit.engine.queries.test_following import Changes


@pytest.mark.parametrize(
    ("known", "settings", "said"),
    [
        (False, {}, "is not the root of a run"),
        (True, {"pages": "/nowhere"}, "is no folder"),
        (True, {"host": "0.0.0.0"}, "without authentication"),
    ],
)
def test_what_cannot_be_served_is_a_sentence(
    known: bool,
    settings: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = RunInfo("asked", "1", "local:x", 1) if known else None
    monkeypatch.setattr(serving, "read_run", lambda root: run)
    given = ServeSettings(tmp_path, **{"host": "127.0.0.1", **settings}, port=0)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match=said):
        serve(given, Changes(), lambda url: None)
