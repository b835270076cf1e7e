from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millwheel.adapters.spaces.replay_orders import ReplayOrders
from millwheel.tools.cli.app import app
from millwheel.tools.cli.look import page
from millwheel.tools.ui.serving import UiSettings


def test_options_become_settings_and_the_address_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[UiSettings] = []

    def serve(settings: UiSettings, orders: Any, told: Any) -> None:
        given.append(settings)
        assert isinstance(orders(str(tmp_path)), ReplayOrders)
        told("http://127.0.0.1:1/#token=t")

    monkeypatch.setattr(page, "serve", serve)
    words = ["ui", "a-root", "--port", "1", "--writable", "--allow-host", "proxy.example"]
    done = CliRunner().invoke(app, words)
    assert done.output == "The page is at http://127.0.0.1:1/#token=t\n"
    assert given == [UiSettings("a-root", "127.0.0.1", 1, "", True, ["proxy.example"])]
