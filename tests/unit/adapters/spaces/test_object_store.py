"""A bucket for data. tests/contract/test_object_store.py asks the same of real servers."""

from __future__ import annotations

import sys

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError
from pyarrow import fs

from millwheel.adapters.spaces.object_address import ObjectAddress
from millwheel.adapters.spaces.object_client import CallLimits, connect, explained_call, no_bucket
from millwheel.adapters.spaces.object_store import (
    ObjectStore,
    _options,
    is_odd,
    listed_with_odd_keys,
)
from millwheel.errors import SetupError, UnavailableError


@pytest.mark.parametrize(
    "key", ["in//a", "/in/a", "in/", "in/./a", "in/../a", "..", "in/a\n", "in/\x7fa"]
)
def test_a_key_with_an_empty_part_one_of_points_or_a_control_character_is_odd(key: str) -> None:
    assert is_odd(key)


@pytest.mark.parametrize(
    "key", ["a", "in/a.csv", "in/.hidden", "in/..a", "in/.../a", "in/a b", "in/ä"]
)
def test_points_within_a_part_and_letters_of_any_kind_are_not_odd(key: str) -> None:
    assert not is_odd(key)


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_a_store_other_than_s3_is_told_which_object_is_in_the_way(scheme: str) -> None:
    listing = listed_with_odd_keys(
        ObjectAddress(scheme, "sales", "in"), {}, "in", "the object in//a"
    )
    with pytest.raises(
        SetupError, match=f"{scheme}://sales cannot be listed, because it has the object in//a"
    ):
        next(listing)


def test_the_options_of_the_client_are_those_of_arrow_by_its_names() -> None:
    options = _options(
        {
            "AWS_ACCESS_KEY_ID": "key",
            "aws_secret_access_key": "hidden",
            "token": "session",
            "region": "eu-west-1",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
            "virtual_hosted_style_request": "TRUE",
            "skip_signature": "false",
            "timeout": "5s",
        }
    )
    assert options == {
        "access_key": "key",
        "secret_key": "hidden",
        "session_token": "session",
        "region": "eu-west-1",
        "endpoint_override": "http://127.0.0.1:1",
        "force_virtual_addressing": True,
        "anonymous": False,
    }
    assert fs.S3FileSystem(**options).region == "eu-west-1"


BUCKET = ObjectAddress("s3", "bucket", "")


def test_without_its_package_a_store_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[s3\]'"):
        ObjectStore(BUCKET, {}).get("x")


def test_a_wrong_configuration_is_named_without_its_values() -> None:
    with pytest.raises(SetupError, match=r"'config' \(secret_acces_key\)") as raised:
        ObjectStore(BUCKET, {"secret_acces_key": "hush-hush"}).get("x")
    assert "hush" not in str(raised.value)


def test_a_store_that_does_not_answer_may_answer_later() -> None:
    config = {
        "endpoint": "http://127.0.0.1:9",
        "access_key_id": "a",
        "secret_access_key": "b",
        "region": "x",
    }
    with pytest.raises(UnavailableError, match="cannot read s3://bucket/x"):
        ObjectStore(BUCKET, config, CallLimits(retries=0)).get("x")


# object_client.py

ADDRESS = ObjectAddress("s3", "bucket", "prefix")


def test_a_silent_store_may_have_done_it_and_one_that_refuses_is_a_matter_of_setup() -> None:
    for error, kind, words in (
        (GenericError("timed out"), UnavailableError, "look at the endpoint"),
        (PermissionDeniedError("403"), SetupError, "give credentials"),
        (GenericError("<Code>NoSuchBucket</Code>"), SetupError, "there is no bucket 'bucket'"),
    ):
        found = explained_call(error, "read x", ADDRESS)
        assert type(found) is kind
        assert str(found).startswith("cannot read x: ")
        assert words in str(found)


def test_the_inside_of_the_client_is_not_shown_and_a_long_reason_is_cut() -> None:
    text = str(explained_call(GenericError("first  line\n\nDebug source: secret"), "read", ADDRESS))
    assert "first line" in text
    assert "secret" not in text
    assert len(str(explained_call(GenericError("x" * 10_000), "read", ADDRESS))) < 1_000


def test_a_missing_bucket_is_told_from_a_missing_object() -> None:
    assert no_bucket(GenericError("NoSuchBucket"))
    assert not no_bucket(GenericError("NoSuchKey"))


def test_nothing_is_asked_of_a_store_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert connect(ADDRESS, {}, CallLimits()) is not None
