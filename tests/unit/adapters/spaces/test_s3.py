from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.spaces.s3 import S3Space
from millwheel.adapters.spaces.s3_address import S3Address
from millwheel.errors import SetupError, UnavailableError
from tests.fakes.s3_server import BUCKET, QUICK, Fault, S3Server


@pytest.fixture(autouse=True)
def _healthy(s3: S3Server) -> None:
    s3.fail()


@pytest.fixture
def space(s3: S3Server) -> S3Space:
    return s3.space()


@pytest.mark.parametrize("what", ["lose_answer", "vanish", "refuse"])
@pytest.mark.parametrize("times", [1, 2, 4])
def test_a_create_without_an_answer_is_settled_and_is_ours(s3: S3Server, space: S3Space, what: str, times: int) -> None:
    s3.fail(Fault("PUT", "/x", what, times))
    assert space.create(f"{space.root}/x", b"put-id 1")
    assert space.get(f"{space.root}/x") == b"put-id 1"


@pytest.mark.parametrize("what", ["lose_answer", "vanish"])
def test_a_create_without_an_answer_whose_name_another_has_is_not_ours(s3: S3Server, space: S3Space, what: str) -> None:
    space.create(f"{space.root}/x", b"theirs")
    s3.fail(Fault("PUT", "/x", what, 5))
    assert not space.create(f"{space.root}/x", b"ours")


def test_a_create_that_never_gets_an_answer_is_indeterminate_for_a_bounded_time(s3: S3Server, space: S3Space) -> None:
    s3.fail(Fault("PUT", "/x", "vanish", 1000), Fault("GET", "/x", "vanish", 1000))
    with pytest.raises(UnavailableError, match=f"{space.root}/x.*It is not known whether the object exists"):
        space.create(f"{space.root}/x", b"1")
    s3.fail()
    assert space.create(f"{space.root}/x", b"1")


def test_who_has_a_name_is_asked_again_when_the_store_does_not_say(s3: S3Server, space: S3Space) -> None:
    space.create(f"{space.root}/x", b"theirs")
    s3.fail(Fault("GET", "/x", "refuse", 1))
    assert not space.create(f"{space.root}/x", b"ours")


@pytest.mark.parametrize("what", ["lose_answer", "vanish", "refuse"])
def test_a_replacement_without_an_answer_is_read_back(s3: S3Server, space: S3Space, what: str) -> None:
    key = f"{space.root}/x"
    space.create(key, b"one")
    seen = space.version(key)
    assert seen is not None
    s3.fail(Fault("PUT", "/x", what, 1))
    tag = space.replace(key, b"two", seen.tag)
    found = space.version(key)
    assert found is not None
    assert (found.data, found.tag) == (b"two", tag)
    assert space.replace(key, b"three", seen.tag) is None
    assert space.get(key) == b"two"


def test_nothing_is_replaced_where_nothing_is(space: S3Space) -> None:
    assert space.version(f"{space.root}/x") is None
    assert space.replace(f"{space.root}/x", b"two", '"0"') is None


def test_an_error_is_never_taken_for_missing(s3: S3Server, space: S3Space, tmp_path: Path) -> None:
    s3.fail(Fault("GET", "", "refuse", 1000), Fault("HEAD", "", "refuse", 1000))
    key = f"{space.root}/x"
    for call in (space.get, space.exists, space.names, space.claimed, space.version):
        with pytest.raises(UnavailableError, match=space.root):
            call(key)
    with pytest.raises(UnavailableError, match=f"download to .* {key}"):
        space.fetch_file(key, str(tmp_path / "target"))


def test_a_bucket_that_is_not_there_is_an_error_of_its_own() -> None:
    space = S3Space(S3Address("no-such-bucket", "p"), QUICK)
    for call in (space.get, space.names, lambda key: space.create(key, b"")):
        with pytest.raises(SetupError, match=r"no bucket no-such-bucket at this endpoint: create it"):
            call(f"{space.root}/x")


def test_being_denied_says_which_rights_are_needed(s3: S3Server, space: S3Space) -> None:
    s3.fail(Fault("PUT", "/x", "deny", 10), Fault("GET", "/x", "deny", 10))
    with pytest.raises(SetupError, match=r"cannot create .*/x.*AWS_ACCESS_KEY_ID"):
        space.create(f"{space.root}/x", b"")
    with pytest.raises(SetupError, match="may get, put, delete and list"):
        space.get(f"{space.root}/x")


def test_an_endpoint_that_does_not_answer_is_given_up_after_a_while() -> None:
    space = S3Space(S3Address(BUCKET, "p", "http://127.0.0.1:9"), QUICK)
    with pytest.raises(UnavailableError, match=r"cannot list s3://pipelines/p.*AWS_ENDPOINT_URL"):
        space.names(space.root)
