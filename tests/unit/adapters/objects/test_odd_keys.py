from __future__ import annotations

import pytest
from pyarrow import fs

from millwheel.adapters.objects.address import ObjectAddress
from millwheel.adapters.objects.odd_keys import _options, is_odd, listed_with_odd_keys
from millwheel.errors import SetupError


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
