from __future__ import annotations

import builtins
from typing import Any

import pytest

from millwheel.connect.connectors.postgres import client
from millwheel.errors import SetupError


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def absent(name: str, *words: Any, **named: Any) -> Any:
        if name == "psycopg":
            raise ImportError(name)
        return plain(name, *words, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[postgres\]'"):
        client.library()
