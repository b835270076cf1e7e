from __future__ import annotations

import io
import json
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters import secret_values
from millwheel.adapters.secret_values import (
    FOLDER_VARIABLE,
    SECRET_NAME,
    Secret,
    forms_of,
    holds_secret,
    masked,
    masking,
    revealed,
    unrevealed,
)
from millwheel.errors import SetupError

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


OPTIONS = {
    "url": Secret("pg://me:${secret:PG}@db/$${x}"),
    "more": [{"token": Secret("${secret:API}")}],
    "port": 5,
}


@pytest.fixture(autouse=True)
def values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_values, "_seen", set())
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("PG", "pa$$ \\1 'wörd'")
    monkeypatch.setenv("API", "t0ken")


def test_a_secret_tells_nothing_of_itself() -> None:
    assert f"{OPTIONS['url']} {OPTIONS['url']!r} {OPTIONS}".count("***") == 4
    assert "PG" not in str(OPTIONS)


def test_options_are_filled_in_where_they_are_used() -> None:
    found = revealed(OPTIONS)
    assert found == {
        "url": "pg://me:pa$$ \\1 'wörd'@db/${x}",
        "more": [{"token": "t0ken"}],
        "port": 5,
    }
    assert isinstance(OPTIONS["url"], Secret)


def test_a_check_of_options_needs_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("API")
    assert unrevealed(OPTIONS)["more"] == [{"token": "${secret:API}"}]


def test_a_file_comes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "API").write_text("of the file\n")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert revealed(OPTIONS)["more"] == [{"token": "of the file"}]
    assert revealed(OPTIONS)["url"].startswith("pg://me:pa$$")


@pytest.mark.parametrize("value", [None, ""])
def test_a_secret_without_a_value_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("API")
    if value is not None:
        monkeypatch.setenv("API", value)
    with pytest.raises(SetupError, match="The secret 'API' has no value here"):
        revealed(OPTIONS)


def test_a_file_that_cannot_be_read_is_a_sentence_without_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "API").write_bytes(b"t0ken\xff")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(SetupError, match="'API' cannot be read") as caught:
        revealed(OPTIONS)
    assert "t0ken" not in str(caught.value)


def test_what_was_revealed_is_masked_in_texts_however_they_quote_it() -> None:
    revealed(OPTIONS)
    value = "pa$$ \\1 'wörd'"
    for text in (
        value,
        repr(value),
        repr({"a": value}),
        "pa%24%24%20%5C1%20%27w%C3%B6rd%27",
        "\"pa$$ \\\\1 'w\\u00f6rd'\"",
    ):
        assert "pa" not in masked(f"- {text} t0ken -")
        assert "t0ken" not in masked(f"- {text} t0ken -")


def test_a_value_too_short_to_be_told_from_other_words_is_not_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("API", "a")
    revealed(OPTIONS)
    assert masked("a banana") == "a banana"


def test_a_masking_stream_is_the_stream_it_was_but_for_secrets() -> None:
    plain = io.StringIO()
    stream = masking(plain)
    stream.write("before\n")
    revealed(OPTIONS)
    stream.writelines(["t0", "ken\n", "a t0ken\n"])
    print("t0ken", "end", file=stream)
    assert plain.getvalue() == "before\nt0ken\na ***\n*** end\n"
    assert not stream.isatty()


@pytest.mark.parametrize("name", ["", "API"])
def test_a_secret_that_others_may_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "API").write_text("of the file")
    (tmp_path / name).chmod(0o777)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(SetupError, match="chmod go-w"):
        revealed(OPTIONS)


def test_a_secret_is_filled_where_it_stands_and_shows_nothing_of_itself() -> None:
    secret = Secret("postgres://u:${secret:PG}@${secret:HOST}/x")
    assert secret.filled({"PG": "s3cret", "HOST": "db"}.__getitem__) == "postgres://u:s3cret@db/x"
    assert "secret:PG" not in f"{secret!r}{[secret]}"


def test_dollars_that_are_no_secret_stay_and_a_value_is_not_looked_into() -> None:
    assert (
        Secret("$${x} $x ${secret:A}").filled(lambda name: "${secret:B}") == "${x} $x ${secret:B}"
    )


@pytest.mark.parametrize("name", ["../etc/passwd", "/x", "", ".x", "a b", "a/b", "x" * 129])
def test_a_name_leads_out_of_no_folder(name: str) -> None:
    assert not SECRET_NAME.fullmatch(name)
