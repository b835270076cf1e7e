from __future__ import annotations

import io
from pathlib import Path

import pytest

from millwheel.adapters import secret_values
from millwheel.adapters.secret_values import (
    FOLDER_VARIABLE,
    SECRET_NAME,
    Secret,
    masked,
    masking,
    revealed,
    unrevealed,
)
from millwheel.errors import SetupError

OPTIONS = {
    "url": Secret("pg://me:${secret:PG}@db/$${x}"),
    "more": [{"token": Secret("${secret:API}")}],
    "port": 5,
}


@pytest.fixture(autouse=True)
def values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_values, "_known", set())
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
