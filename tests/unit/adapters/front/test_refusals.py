from __future__ import annotations

import logging

import pytest

from millwheel.adapters.front import refusals
from millwheel.adapters.front.refusals import RefusalLog


def test_many_refusals_are_few_lines_and_none_is_uncounted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(refusals, "monotonic", lambda: now_s[0])
    told = RefusalLog(logging.getLogger("t"))
    for _ in range(1_000):
        told.tell("Refused %s.", "it")
    now_s[0] += 1
    told.tell("Refused %s.", "that")
    assert [each.getMessage() for each in caplog.records] == [
        "Refused it.",
        "Refused that. 999 others were refused since the last line.",
    ]
