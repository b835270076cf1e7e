from __future__ import annotations

import pytest

from millwheel.adapters.spaces.root_address import RootAddress, in_bucket, parse_root
from millwheel.errors import SetupError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("s3://bucket/p", RootAddress("s3", "bucket", "p")),
        ("s3://my.bucket-1/a/b_c/d=e/", RootAddress("s3", "my.bucket-1", "a/b_c/d=e")),
        (
            "s3://bucket/p?endpoint=http://host:9000&region=eu-1",
            RootAddress(
                "s3", "bucket", "p", (("endpoint", "http://host:9000"), ("region", "eu-1"))
            ),
        ),
        ("gs://bucket_1/p", RootAddress("gs", "bucket_1", "p")),
        (
            "az://container/p?account=shop",
            RootAddress("az", "container", "p", (("account", "shop"),)),
        ),
    ],
)
def test_addresses_are_read_and_written(text: str, address: RootAddress) -> None:
    assert parse_root(text) == address
    assert parse_root(str(address)) == address
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
        ("s3://bucket/p?secret=x", "'secret', which is not one of its options"),
        ("s3://bucket/p#x", "#x"),
        ("s3://bucket/p?endpoint=host:9000", "http://host:port"),
        ("gs://bucket/p?region=x", "'region', which is not one of its options"),
        ("az://container", "write az://container/prefix"),
    ],
)
def test_an_address_that_is_none_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(SetupError, match=words):
        parse_root(text)


def test_credentials_are_not_repeated() -> None:
    with pytest.raises(SetupError) as raised:
        parse_root("s3://key:hunter2@bucket/p")
    assert "hunter2" not in str(raised.value)


def test_other_roots_are_none() -> None:
    assert all(map(in_bucket, ("s3://bucket/p", "gs://bucket/p", "az://container/p")))
    assert not any(map(in_bucket, ("/s3", "file:///s3://x", "s3", "hdfs://host/p")))


def test_the_client_is_told_what_the_address_says_in_its_own_words() -> None:
    assert parse_root("gs://b12/p?endpoint=http://x").config() == {"base_url": "http://x"}
    assert parse_root("az://b12/p?account=a&endpoint=http://x").config() == {
        "account_name": "a",
        "endpoint": "http://x",
    }
