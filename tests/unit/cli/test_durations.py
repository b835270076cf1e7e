from __future__ import annotations

import pytest

from millwheel.cli.durations import seconds
from millwheel.errors import SetupError


def test_a_duration_is_seconds() -> None:
    assert (seconds("1500ms", "--every"), seconds("2m", "--every")) == (1.5, 120.0)


@pytest.mark.parametrize("text", ["soon", "0s", "-1s", "5", ""])
def test_what_is_none_is_told_with_its_option(text: str) -> None:
    with pytest.raises(SetupError, match=f"--every {text}"):
        seconds(text, "--every")
