"""``millwheel serve`` reaches the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from millwheel.cli.app import app
from millwheel.cli.ask import serving
from millwheel.gateway.serving import ServeSettings


def test_every_option_arrives_and_the_address_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[ServeSettings] = []

    def run(settings: ServeSettings, changes: object, told: object) -> None:
        found.append(settings)
        told("http://127.0.0.1:8080")  # type: ignore[operator]

    monkeypatch.setattr(serving, "run", run)
    words = "--port 9 --listen 10.0.0.1 --security s --cors https://a --cors https://b --pages p --allow-host h"
    done = CliRunner().invoke(app, ["serve", str(tmp_path), *words.split()])
    assert done.stdout == "Serving http://127.0.0.1:8080\n"
    assert found == [ServeSettings(tmp_path, "10.0.0.1", 9, "s", ["https://a", "https://b"], "p", ["h"])]
