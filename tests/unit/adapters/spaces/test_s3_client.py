from __future__ import annotations

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from millwheel.adapters.spaces.s3_address import parse_s3
from millwheel.adapters.spaces.s3_client import S3Limits, connect, no_bucket, translated
from millwheel.errors import SetupError, UnavailableError

ADDRESS = parse_s3("s3://bucket/prefix")


def test_a_store_that_does_not_answer_may_have_done_it_and_one_that_refuses_is_a_matter_of_setup() -> None:
    for error, kind, words in (
        (GenericError("timed out"), UnavailableError, "Look at the endpoint"),
        (PermissionDeniedError("403"), SetupError, "Give credentials"),
        (GenericError("<Code>NoSuchBucket</Code>"), SetupError, "There is no bucket bucket"),
    ):
        found = translated(error, "read x", ADDRESS)
        assert type(found) is kind
        assert str(found).startswith("cannot read x: ")
        assert words in str(found)


def test_the_inside_of_the_client_is_not_shown_and_a_long_reason_is_cut() -> None:
    text = str(translated(GenericError("first  line\n\nDebug source: secret"), "read", ADDRESS))
    assert "first line" in text
    assert "secret" not in text
    assert len(str(translated(GenericError("x" * 10_000), "read", ADDRESS))) < 1_000


def test_a_missing_bucket_is_told_from_a_missing_object() -> None:
    assert no_bucket(GenericError("NoSuchBucket"))
    assert not no_bucket(GenericError("NoSuchKey"))


def test_nothing_is_asked_of_a_store_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert connect(ADDRESS, S3Limits()) is not None
