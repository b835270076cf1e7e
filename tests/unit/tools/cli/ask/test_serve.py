"""``millwheel serve`` reaches the gateway."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millwheel.tools.cli.app import app
from millwheel.tools.cli.ask import serve
from millwheel.tools.gateway.server import ServeSettings

RUN = {"pipeline": "p", "instance": "i", "zookeeper": "127.0.0.1:1", "driver_pid": 1}


def test_every_option_arrives_and_the_address_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[ServeSettings] = []

    def run(settings: ServeSettings, changes: object, told: object) -> None:
        found.append(settings)
        told("http://127.0.0.1:8080")  # type: ignore[operator]

    monkeypatch.setattr(serve, "run", run)
    words = (
        "--port 9 --listen 10.0.0.1 --security s --cors https://a --cors https://b --pages p"
        " --allow-host h"
    )
    done = CliRunner().invoke(app, ["serve", str(tmp_path), *words.split()])
    assert done.stdout == "Serving http://127.0.0.1:8080\n"
    assert found == [
        ServeSettings(tmp_path, "10.0.0.1", 9, "s", ["https://a", "https://b"], "p", ["h"])
    ]


def test_with_wait_it_serves_once_there_is_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Path] = []
    monkeypatch.setattr(serve, "run", lambda settings, changes, told: found.append(settings.root))
    monkeypatch.setattr(serve, "_AGAIN_S", 0.01)
    starts = threading.Timer(0.2, (tmp_path / "run.json").write_text, [json.dumps(RUN)])
    starts.start()
    done = CliRunner().invoke(app, ["serve", str(tmp_path), "--wait"])
    starts.join()
    assert done.exit_code == 0, done.output
    assert found == [tmp_path]
