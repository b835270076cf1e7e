from __future__ import annotations

import sys

import pytest
from redis import exceptions

from millwheel.connect.connectors.external.meanings import Meaning, RowToBlameError, UnknownError
from millwheel.connect.connectors.redis import client
from millwheel.connect.connectors.redis.client import check_url, library, where
from millwheel.errors import SetupError, UnavailableError


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (exceptions.ResponseError("MISCONF disk"), Meaning.ABSENT),
        (exceptions.ResponseError("CROSSSLOT keys"), Meaning.MEND),
        (exceptions.ResponseError("WRONGTYPE value"), Meaning.ROWS),
        (exceptions.ResponseError("ERR who knows"), Meaning.UNKNOWN),
        (exceptions.ResponseError("it is not LOADING"), Meaning.UNKNOWN),
    ],
)
def test_a_reply_means_what_its_first_word_says(error: Exception, meaning: Meaning) -> None:
    assert client.meaning_of(error) is meaning


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (exceptions.AuthenticationError("no"), Meaning.MEND),
        (exceptions.MaxConnectionsError("no"), Meaning.ABSENT),
        (exceptions.TimeoutError("no"), Meaning.ABSENT),
        (exceptions.DataError("no"), Meaning.ROWS),
        (ConnectionResetError("no"), Meaning.ABSENT),
        (UnicodeError("no"), Meaning.ROWS),
        (RuntimeError("no"), Meaning.UNKNOWN),
    ],
)
def test_without_such_a_word_the_nearest_class_decides(error: Exception, meaning: Meaning) -> None:
    assert client.meaning_of(error) is meaning


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (exceptions.ResponseError("OOM no memory"), UnavailableError, "OOM no memory"),
        (exceptions.ResponseError("WRONGTYPE value"), RowToBlameError, "WRONGTYPE value"),
        (exceptions.AuthenticationError(), SetupError, "AuthenticationError"),
        (exceptions.ResponseError("ERR odd"), UnknownError, "ERR odd"),
    ],
)
def test_it_is_told_with_the_server_and_the_words_of_the_client(
    error: Exception, kind: type, words: str
) -> None:
    told = client.in_words(error, "Redis at h")
    assert type(told) is kind
    assert str(told).startswith(f"Redis at h: {words}")


def test_an_error_of_ours_stays_as_it_is() -> None:
    ours = SetupError("LOADING is not an option")
    assert client.in_words(ours, "Redis at h") is ours


# client.py


@pytest.mark.parametrize("url", ["redis://h", "rediss://u:p@h:6380/1", "unix:///run/redis.sock"])
def test_addresses_of_servers(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize("url", ["", "h:6379", "http://h", "redis://", "unix:"])
def test_what_is_no_address_is_told_with_one_that_is(url: str) -> None:
    with pytest.raises(ValueError, match="option 'url' must begin with redis://"):
        check_url(url)


def test_a_server_is_named_without_its_password() -> None:
    assert where("rediss://user:s3cret@h:6380/1") == "Redis at h:6380"
    assert where("redis://:s3cret@h") == "Redis at h:6379"
    assert where("unix:///run/redis.sock?password=s3cret") == "Redis at /run/redis.sock"


def test_without_the_package_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[redis\]'"):
        library()
