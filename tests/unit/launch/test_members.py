from __future__ import annotations

import msgspec

from millwheel.launch.members import (
    JoinedWorker,
    StopRequest,
    on_stop,
    read_members,
)


def test_members_are_read_from_what_they_joined_with() -> None:
    assert read_members(
        {"w0-1": b'{"slot": 0, "pid": 100, "address": "h:1", "host": "h", "rack": "r"}'}
    ) == {"w0-1": JoinedWorker(0, 100, host="h", rack="r")}


OWN = StopRequest("instance", 7)


def asked(*members: object) -> int:
    calls: list[int] = []
    changed = on_stop(OWN, lambda: calls.append(1))
    changed(
        {
            f"m{n}": each if isinstance(each, bytes) else msgspec.json.encode(each)
            for n, each in enumerate(members)
        }
    )
    return len(calls)


def test_only_who_means_this_life_of_this_driver_stops_it() -> None:
    assert asked(OWN) == 1
    assert asked(StopRequest("instance", 8), StopRequest("other", 7)) == 0
    assert asked() == 0


def test_what_is_no_request_stops_nobody_and_hides_none() -> None:
    assert asked(b"\xff", b"{}", b"5") == 0
    assert asked(b"\xff", OWN) == 1
