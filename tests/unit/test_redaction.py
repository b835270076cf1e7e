from __future__ import annotations

from typing import Any

import pytest

from millwheel.redaction import redacted

DEEP: Any = {"a": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"user": "ann", "password": "x"}, {"user": "ann", "password": "***"}),
        ({"API-Key": 1, "authToken": [1]}, {"API-Key": "***", "authToken": "***"}),
        ({"outer": {"client_secret": "x"}}, {"outer": {"client_secret": "***"}}),
        ("x" * 300, "x" * 200 + "… (300 characters)"),
        (list(range(22)), [*range(20), "… 2 more"]),
        (2**60, str(2**60)),
        ([1.5, None, True], [1.5, None, True]),
    ],
)  # fmt: skip
def test_values_as_people_may_see_them(value: Any, shown: Any) -> None:
    assert redacted(value) == shown


def test_what_lies_deep_is_cut() -> None:
    found = redacted(DEEP)
    for _ in range(6):
        found = found["a"]
    assert found == "{…}"


def test_a_map_with_many_fields_says_how_many_more() -> None:
    assert redacted({str(n): n for n in range(25)})["…"] == "5 more"
