from __future__ import annotations

import os
import time
from collections.abc import Iterator

import msgspec
import pytest

from millwheel.adapters.spaces.object_space import ReplacingSpace
from millwheel.control.roots.lease import LEASE_FILE, DriverLease, LeasePace
from millwheel.errors import SetupError
from tests.fakes.buckets import Fault
from tests.fakes.s3_server import S3Server
from tests.unit.launch.helpers import eventually

PACE = LeasePace(beat_s=0.05, silent_s=0.6, look_s=0.05)
STILL = LeasePace(beat_s=3600.0, silent_s=0.2, look_s=0.05)


@pytest.fixture
def space(s3: S3Server) -> Iterator[ReplacingSpace]:
    s3.fail()
    yield s3.space()
    s3.fail()


def take(space: ReplacingSpace, pace: LeasePace = PACE) -> DriverLease:
    return DriverLease.take(space, lambda sentence: None, pace)


def pretend(space: ReplacingSpace, **changes: object) -> None:
    """The driver is a process elsewhere."""
    key = f"{space.root}/{LEASE_FILE}"
    found = space.version(key)
    assert found is not None
    holder = {**msgspec.json.decode(found.data), **changes}
    assert space.replace(key, msgspec.json.encode(holder), found.version)


def test_one_drives_and_others_are_told_who(space: ReplacingSpace) -> None:
    lease = take(space)
    with pytest.raises(SetupError, match=rf"going on already \(process {os.getpid()} on "):
        take(space)
    lease.check()
    lease.release()
    take(space).release()


def test_a_released_root_is_taken_at_once(space: ReplacingSpace) -> None:
    take(space, STILL).release()
    began_s = time.monotonic()
    take(space, LeasePace(silent_s=60)).release()
    assert time.monotonic() - began_s < 10


def test_a_silent_driver_elsewhere_is_waited_for_and_learns_that_it_lost(
    space: ReplacingSpace,
) -> None:
    old = take(space, STILL)
    pretend(space, here="another machine", who="process 7 on elsewhere")
    said: list[str] = []
    new = DriverLease.take(space, said.append, STILL)
    assert "process 7 on elsewhere" in said[0]
    old._beat()
    with pytest.raises(SetupError, match="took the root while this driver was silent"):
        old.check()
    old.release()
    new._beat()
    new.check()
    new.release()


def test_a_dead_process_of_this_machine_is_not_waited_for(space: ReplacingSpace) -> None:
    take(space, STILL)
    pretend(space, pid=2**22 + 1)
    take(space, LeasePace(silent_s=3600)).release()


def test_a_store_that_is_away_is_borne_for_as_long_as_nobody_may_take_the_root(
    s3: S3Server, space: ReplacingSpace
) -> None:
    lease = take(space)
    s3.fail(Fault("PUT", LEASE_FILE, "refuse", 10_000), Fault("GET", LEASE_FILE, "refuse", 10_000))
    lease.check()

    def lost() -> bool:
        try:
            lease.check()
        except SetupError as error:
            return "could not be held" in str(error)
        return False

    eventually(lost)
    lease.release()


def test_a_beat_whose_answer_is_lost_is_no_loss_of_the_root(
    s3: S3Server, space: ReplacingSpace
) -> None:
    lease = take(space, STILL)
    for what in ("lose_answer", "vanish"):
        s3.fail(Fault("PUT", LEASE_FILE, what, 1))
        lease._beat()
        lease.check()
    lease.release()
