from __future__ import annotations

import msgspec

from millwheel.launch.stopping import StopRequest, on_stop

MINE = StopRequest("instance", 7)


def asked(*members: object) -> int:
    calls: list[int] = []
    changed = on_stop(MINE, lambda: calls.append(1))
    changed(
        {
            f"m{n}": each if isinstance(each, bytes) else msgspec.json.encode(each)
            for n, each in enumerate(members)
        }
    )
    return len(calls)


def test_only_who_means_this_life_of_this_driver_stops_it() -> None:
    assert asked(MINE) == 1
    assert asked(StopRequest("instance", 8), StopRequest("other", 7)) == 0
    assert asked() == 0


def test_what_is_no_request_stops_nobody_and_hides_none() -> None:
    assert asked(b"\xff", b"{}", b"5") == 0
    assert asked(b"\xff", MINE) == 1
