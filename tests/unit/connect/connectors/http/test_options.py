"""The options of the source ``http``: which are refused."""

from __future__ import annotations

import pytest

from millwheel.connect.connectors.http.options import read_http_options


def test_options_that_cannot_work_are_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="needs the option 'port'; write for example port: 8080"):
        read_http_options({})
    with pytest.raises(ValueError, match="option 'port' is 70000; write a number from 1 to 65535"):
        read_http_options({"port": 70_000})
