from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from millwheel.adapters.redaction import redacted, redacted_text

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


HIDDEN = (
    "password",
    "userPwd",
    "pin",
    "otp",
    "jwt",
    "session",
    "sessionId",
    "private_key",
    "db.passwd",
    "x-api-key",
)
SHOWN = ("shipping", "spin", "session_length", "author", "passenger", "keyboard", "stop")


@pytest.mark.parametrize("name", HIDDEN)
def test_no_form_of_a_record_shows_a_secret_field(name: str) -> None:
    text = json.dumps({"user": "bob", name: "hunter2-hunter2"})
    quoted = json.dumps({"raw": text})
    for form in (
        text,
        text.encode(),
        base64.b64encode(text.encode()).decode(),
        {"body": text},
        [quoted],
        text[:-1],
    ):
        shown = json.dumps(redacted(form), ensure_ascii=False)
        assert "hunter2" not in shown
        assert "bob" in shown or "bob" in quoted
    for words in (
        f"connect({name}='hunter2-hunter2', a=1)",
        f"ValueError: {text!r}",
        f"{name}=hunter2-hunter2;b=2",
        quoted,
    ):
        assert "hunter2" not in redacted_text(f"Traceback:\n  File x\n{words}")


@pytest.mark.parametrize("name", SHOWN)
def test_fields_that_only_look_like_it_are_shown(name: str) -> None:
    assert redacted(json.dumps({name: "value"})) == {name: "value"}


def test_passwords_within_addresses_and_headers_are_hidden() -> None:
    assert redacted_text("at postgres://me:hunter2@db/x") == "at postgres://me:***@db/x"
    assert "abcdefgh" not in redacted_text("401 for Bearer abcdefghij, then basic abcdefgh=")
    assert redacted([{"name": "Authorization", "value": "x"}]) == [
        {"name": "Authorization", "value": "***"}
    ]


def test_bytes_that_are_no_text_are_told_by_their_number() -> None:
    assert redacted(b"\xff\xfe") == "2 bytes"
    assert redacted({"blob": b"plain"}) == {"blob": "plain"}
