"""A bucket for data. tests/contract/test_object_store.py asks the same of real servers."""

from __future__ import annotations

import sys

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from millwheel.adapters.objects.address import ObjectAddress
from millwheel.adapters.objects.client import CallLimits, connect, explained_call, no_bucket
from millwheel.adapters.objects.store import ObjectStore
from millwheel.errors import SetupError, UnavailableError

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


# client.py

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
