from __future__ import annotations

import pytest

from millwheel.adapters.spaces.s3_address import S3Address, is_s3, parse_s3
from millwheel.errors import SetupError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("s3://bucket/p", S3Address("bucket", "p")),
        ("s3://my.bucket-1/a/b_c/d=e/", S3Address("my.bucket-1", "a/b_c/d=e")),
        (
            "s3://bucket/p?endpoint=http://host:9000&region=eu-1",
            S3Address("bucket", "p", "http://host:9000", "eu-1"),
        ),
    ],
)
def test_addresses_are_read_and_written(text: str, address: S3Address) -> None:
    assert parse_s3(text) == address
    assert parse_s3(str(address)) == address
    assert address.root == str(address).partition("?")[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s3://bucket", "needs a prefix"),
        ("s3://bucket/", "needs a prefix"),
        ("s3://bucket/../other", "needs a prefix"),
        ("s3://bucket/a//b", "needs a prefix"),
        ("s3://bucket/a b", "needs a prefix"),
        ("s3:///p", "names no bucket"),
        ("s3://Bucket_1/p", "names no bucket"),
        ("s3://key:secret@bucket/p", "no credentials"),
        ("s3://bucket/p?secret=x", "'secret', which is none of its options"),
        ("s3://bucket/p#x", "#x"),
        ("s3://bucket/p?endpoint=host:9000", "http://host:port"),
    ],
)
def test_an_address_that_is_none_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(SetupError, match=words):
        parse_s3(text)


def test_credentials_are_not_repeated() -> None:
    with pytest.raises(SetupError) as raised:
        parse_s3("s3://key:hunter2@bucket/p")
    assert "hunter2" not in str(raised.value)


def test_other_roots_are_none() -> None:
    assert is_s3("s3://bucket/p")
    assert not any(map(is_s3, ("/s3", "file:///s3://x", "s3")))
