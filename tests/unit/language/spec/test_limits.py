from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.model.limits import DEFAULTS
from tests.unit.language.spec.conftest import WEBLOG, Problems


def test_a_pipeline_without_limits_has_the_defaults(check: Any) -> None:
    assert check(WEBLOG).limits == DEFAULTS


def test_limits_are_read_and_the_others_stay(check: Any) -> None:
    text = (
        WEBLOG
        + "limits: {record: 1MB, timers_per_key: 7, callback_timeout: 2m, callback_hangs: 3}\n"
    )
    limits = check(text).limits
    assert (limits.record, limits.timers, limits.callback_us, limits.hangs) == (
        10**6,
        7,
        120_000_000,
        3,
    )
    assert (limits.key, limits.state, limits.in_flight) == (
        DEFAULTS.key,
        DEFAULTS.state,
        DEFAULTS.in_flight,
    )


def test_a_callback_may_take_for_ever_if_one_says_so(check: Any) -> None:
    assert check(WEBLOG + "limits: {callback_timeout: never}\n").limits.callback_us is None


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("record: 5", "must be a size"),
        ("record: 1TB", "is not a size"),
        ("record: 1GB", "must lie between 1KiB and 32MiB"),
        ("key: 1B", "must lie between 64B and 1MiB"),
        ("state: 10B", "must lie between"),
        ("in_flight: 1kB", "must lie between"),
        ("timers_per_key: 0", "must be a whole number"),
        ("callback_timeout: 1s", "must lie between"),
        ("callback_timeout: 60", "must be a duration"),
        ("callback_hangs: none", "must be a whole number"),
        ("records: 1MB", "did you mean"),
    ],
)
def test_a_limit_that_makes_no_sense_is_told_with_line_and_field(
    problems: Problems, field: str, words: str
) -> None:
    [problem] = problems(WEBLOG + f"limits: {{{field}}}\n")
    assert words in problem
    assert f":{WEBLOG.count(chr(10)) + 1}: limits" in problem
