"""Secrets are found in every form that texts give them, and options that are ones by their
names."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.secret_forms import forms_of, holds_secret

KEY = (
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n9w0BAQEFAASCBKcwggSj\n-----END PRIVATE"
    " KEY-----"
)


def _left(text: str, value: str) -> str:
    for form in sorted(forms_of(value), key=len, reverse=True):
        text = text.replace(form, "***")
    return text


@given(
    st.text(st.characters(codec="utf-8"), min_size=4, max_size=30),
    st.binary(max_size=7),
    st.binary(max_size=7),
)
def test_nothing_of_it_is_left_in_base64_whatever_is_around_it(
    value: str, before: bytes, behind: bytes
) -> None:
    for encode in (b64encode, urlsafe_b64encode):
        text = encode(before + value.encode() + behind).decode()
        assert "***" in _left(text, value)
        shown = _left(text, value).replace("***", "")
        assert len(shown) <= len(encode(before)) + len(encode(behind)) + 4


@pytest.mark.parametrize("value", ["pa$$ w\u00f6rd'\"\\/+", "t0ken-of-the-api", KEY])
def test_every_way_to_write_it_is_known(value: str) -> None:
    for text in (
        value, repr(value), repr(value.encode()), json.dumps(value), json.dumps(value,
        ensure_ascii=False),
        quote(value), quote(value, safe=""), quote_plus(value), value.encode().hex(),
        repr({"a": [value]}),
    ):  # fmt: skip
        assert "***" in _left(text, value)
        assert not any(
            part in _left(text, value) for part in ("w\u00f6rd", "t0ken", "MIIE", "9w0B")
        )


def test_each_line_of_a_key_is_one() -> None:
    assert _left("read 9w0BAQEFAASCBKcwggSj", KEY) == "read ***"
    assert "type" not in forms_of('{\n"type": 1,\n"key": "abcdefgh"\n}')


@pytest.mark.parametrize(
    ("name", "value", "is_one"),
    [
        ("password", "x", True), ("sasl.password", "x", True), ("sslpassword", "x", True),
        ("apiKey", "x", True),
        ("pin", 1234, True), ("Authorization", "Bearer x", True), ("client_secret", "x", True),
        ("token", "x", True),
        ("url", "postgres://me:pw@db/x", True), ("dsn", "host=db password=pw", True),
        ("account_key", "x", True),
        ("password", "", False), ("password", None, False), ("token_field", "x", False),
        ("max_tokens", 5, False),
        ("session.timeout.ms", 5, False), ("ssl.ca.location", "x", False), ("url",
        "postgres://me@db/x", False),
        ("url", "http://db:80/x", False), ("key", "user", False), ("secret_name", "x", False),
        ("token", True, False),
    ],
)  # fmt: skip
def test_options_that_are_secrets_in_plain_text(name: str, value: object, is_one: bool) -> None:
    assert holds_secret(name, value) is is_one
