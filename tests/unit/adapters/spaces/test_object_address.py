"""Addresses of data."""

from __future__ import annotations

import pytest

from millwheel.adapters.spaces.object_address import ObjectAddress, address_of, local_path


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("s3://bucket/a/b*.jsonl", ObjectAddress("s3", "bucket", "a/b*.jsonl")),
        ("gs://bucket/", ObjectAddress("gs", "bucket", "")),
        ("az://box/a?c", ValueError),
        ("az://box/a*?c", ObjectAddress("az", "box", "a*?c")),
        ("results/x", None),
        ("file:///results/x", None),
        ("file://host/results", ValueError),
        ("ftp://host/x", ValueError),
        ("s3://a/b", ValueError),
    ],
)
def test_a_path_is_an_address_or_of_this_machine(path: str, address: object) -> None:
    if address is ValueError:
        with pytest.raises(ValueError, match="option 'path'"):
            address_of(path)
    else:
        assert address_of(path) == address


def test_a_url_of_a_file_is_its_path() -> None:
    assert [local_path(path) for path in ("file:///a%20b/c", "a/b")] == ["/a b/c", "a/b"]


def test_a_password_in_an_address_is_not_told() -> None:
    with pytest.raises(
        ValueError, match=r"option 'path' is postgresql://host/db: nothing here reads"
    ):
        address_of("postgresql://user:hush@host/db")
