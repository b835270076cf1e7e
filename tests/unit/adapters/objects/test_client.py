from __future__ import annotations

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from millwheel.adapters.objects.address import ObjectAddress
from millwheel.adapters.objects.client import CallLimits, connect, explained_call, no_bucket
from millwheel.errors import SetupError, UnavailableError

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
