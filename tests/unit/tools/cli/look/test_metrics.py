from __future__ import annotations

import json
from pathlib import Path

import pytest

from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.control.roots.root import RunInfo
from millwheel.errors import UnavailableError
from millwheel.launch.metrics import METRICS_FILE
from millwheel.tools.cli.look import metrics as command


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(command, "attach", lambda root: RunInfo("ads", "i", "z", 1))
    return tmp_path


def test_the_text_of_the_driver_is_printed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnavailableError, match="yet"):
        command.metrics(str(root))
    endpoint = Endpoint("127.0.0.1:0", None, {"/metrics": lambda: b"up 1\n"})
    endpoint.start()
    (root / METRICS_FILE).write_text(json.dumps([{"targets": [endpoint.address]}]))
    command.metrics(str(root))
    assert capsys.readouterr().out == "up 1\n"
    endpoint.close()
    with pytest.raises(UnavailableError, match="does not answer"):
        command.metrics(str(root))
