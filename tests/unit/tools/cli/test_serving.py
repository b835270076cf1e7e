"""``millwheel serve`` reaches the gateway."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millwheel.adapters.spaces.root_notes import ReplayOrders
from millwheel.tools.cli import serving
from millwheel.tools.cli.app import app
from millwheel.tools.gateway.server import ServeSettings
from millwheel.tools.ui.server import UiSettings

RUN = {"pipeline": "p", "instance": "i", "zookeeper": "127.0.0.1:1", "driver_pid": 1}


def test_every_option_arrives_and_the_address_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[ServeSettings] = []

    def run(settings: ServeSettings, changes: object, told: object) -> None:
        found.append(settings)
        told("http://127.0.0.1:8080")  # type: ignore[operator]

    monkeypatch.setattr(serving, "serve_gateway", run)
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
    monkeypatch.setattr(
        serving, "serve_gateway", lambda settings, changes, told: found.append(settings.root)
    )
    monkeypatch.setattr(serving, "_AGAIN_S", 0.01)
    starts = threading.Timer(0.2, (tmp_path / "run.json").write_text, [json.dumps(RUN)])
    starts.start()
    done = CliRunner().invoke(app, ["serve", str(tmp_path), "--wait"])
    starts.join()
    assert done.exit_code == 0, done.output
    assert found == [tmp_path]


def test_options_become_settings_and_the_address_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_seen: list[UiSettings] = []

    def noted(settings: UiSettings, orders: Any, told: Any) -> None:
        settings_seen.append(settings)
        assert isinstance(orders(str(tmp_path)), ReplayOrders)
        told("http://127.0.0.1:1/#token=t")

    monkeypatch.setattr(serving, "serve_page", noted)
    words = ["ui", "a-root", "--port", "1", "--writable", "--allow-host", "proxy.example"]
    done = CliRunner().invoke(app, words)
    assert done.output == "The page is at http://127.0.0.1:1/#token=t\n"
    assert settings_seen == [UiSettings("a-root", "127.0.0.1", 1, "", True, ["proxy.example"])]
