from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.spaces.bucket import BucketSpace
from millwheel.adapters.spaces.object_store import ObjectVersion
from millwheel.adapters.spaces.root_address import RootAddress
from millwheel.errors import SetupError, UnavailableError
from tests.fakes.buckets import BUCKET, QUICK, BucketServer, Fault


@pytest.fixture
def space(bucket_server: BucketServer) -> BucketSpace:
    return bucket_server.space()


@pytest.mark.parametrize("what", ["lose_answer", "vanish", "refuse"])
@pytest.mark.parametrize("times", [1, 2, 4])
def test_a_create_without_an_answer_is_settled_and_is_ours(
    bucket_server: BucketServer, space: BucketSpace, what: str, times: int
) -> None:
    bucket_server.fail(Fault("PUT", "/x", what, times))
    assert space.create(f"{space.root}/x", b"put-id 1")
    assert space.get(f"{space.root}/x") == b"put-id 1"


@pytest.mark.parametrize("what", ["lose_answer", "vanish"])
def test_a_create_without_an_answer_whose_name_another_has_is_not_ours(
    bucket_server: BucketServer, space: BucketSpace, what: str
) -> None:
    space.create(f"{space.root}/x", b"theirs")
    bucket_server.fail(Fault("PUT", "/x", what, 5))
    assert not space.create(f"{space.root}/x", b"ours")


def test_a_create_that_never_gets_an_answer_is_indeterminate_for_a_bounded_time(
    bucket_server: BucketServer, space: BucketSpace
) -> None:
    bucket_server.fail(Fault("PUT", "/x", "vanish", 1000), Fault("GET", "/x", "vanish", 1000))
    with pytest.raises(
        UnavailableError, match=f"{space.root}/x.*It is not known whether the object exists"
    ):
        space.create(f"{space.root}/x", b"1")
    bucket_server.fail()
    assert space.create(f"{space.root}/x", b"1")


def test_who_has_a_name_is_asked_again_when_the_store_does_not_say(
    bucket_server: BucketServer, space: BucketSpace
) -> None:
    space.create(f"{space.root}/x", b"theirs")
    bucket_server.fail(Fault("GET", "/x", "refuse", 1))
    assert not space.create(f"{space.root}/x", b"ours")


@pytest.mark.parametrize("what", ["lose_answer", "vanish", "refuse"])
def test_a_replacement_without_an_answer_is_read_back(
    bucket_server: BucketServer, space: BucketSpace, what: str
) -> None:
    key = f"{space.root}/x"
    space.create(key, b"one")
    seen = space.version(key)
    assert seen is not None
    bucket_server.fail(Fault("PUT", "/x", what, 1))
    version = space.replace(key, b"two", seen.version)
    found = space.version(key)
    assert found is not None
    assert (found.data, found.version) == (b"two", version)
    assert space.replace(key, b"three", seen.version) is None
    assert space.get(key) == b"two"


def test_nothing_is_replaced_where_nothing_is(space: BucketSpace) -> None:
    assert space.version(f"{space.root}/x") is None
    assert space.replace(f"{space.root}/x", b"two", ObjectVersion('"0"', "7")) is None


def test_an_error_is_never_taken_for_missing(
    bucket_server: BucketServer, space: BucketSpace, tmp_path: Path
) -> None:
    bucket_server.fail(Fault("GET", "", "refuse", 1000), Fault("HEAD", "", "refuse", 1000))
    key = f"{space.root}/x"
    for call in (space.get, space.exists, space.names, space.claimed, space.version):
        with pytest.raises(UnavailableError, match=space.root):
            call(key)
    with pytest.raises(UnavailableError, match=f"cannot read {key}"):
        space.fetch_file(key, str(tmp_path / "target"))


def test_a_bucket_that_is_not_there_is_an_error_of_its_own(bucket_server: BucketServer) -> None:
    space = BucketSpace(RootAddress(bucket_server.scheme, "no-such-bucket", "p"), QUICK)
    for call in (space.get, space.names, lambda key: space.create(key, b"")):
        with pytest.raises(
            SetupError, match=r"no bucket 'no-such-bucket' at this endpoint: create it"
        ):
            call(f"{space.root}/x")


def test_being_denied_says_which_rights_are_needed(
    bucket_server: BucketServer, space: BucketSpace
) -> None:
    bucket_server.fail(Fault("PUT", "/x", "deny", 10), Fault("GET", "/x", "deny", 10))
    with pytest.raises(
        SetupError, match=r"cannot write .*/x.*(AWS_ACCESS_KEY_ID|GOOGLE_APPLICATION_CREDENTIALS)"
    ):
        space.create(f"{space.root}/x", b"")
    with pytest.raises(SetupError, match="may get, put, delete and list"):
        space.get(f"{space.root}/x")


def test_an_endpoint_that_does_not_answer_is_given_up_after_a_while() -> None:
    space = BucketSpace(
        RootAddress("s3", BUCKET, "p", (("endpoint", "http://127.0.0.1:9"),)), QUICK
    )
    with pytest.raises(UnavailableError, match=r"cannot list s3://pipelines/p.*AWS_ENDPOINT_URL"):
        space.names(space.root)
