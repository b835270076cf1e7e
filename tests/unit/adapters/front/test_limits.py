from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from millwheel.adapters.front import limits
from millwheel.adapters.front.limits import FrontLimits


@pytest.mark.parametrize(
    "of",
    [
        limits.exchange,
        limits.metrics,
        limits.queries,
        limits.page,
        limits.gateway,
        limits.http_source,
    ],
)
def test_every_listener_has_room_for_somebody_and_an_end_to_every_wait(of) -> None:  # type: ignore[no-untyped-def]
    found: FrontLimits = of()
    assert min(found.strangers, found.most, found.per_address) >= 1
    assert 0 < found.grace_s < found.silent_s <= found.head_s <= found.answer_s
    assert found.per_address <= max(found.most, found.strangers)


def test_the_soft_limit_becomes_the_hard_one() -> None:
    code = (
        "import resource\n"
        "from millwheel.adapters.front.limits import connections, raise_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))\n"
        "raise_limit()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], connections(10_000))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1024", "256"]


@pytest.mark.parametrize(
    ("soft", "most"), [(resource.RLIM_INFINITY, 10_000), (100_000, 10_000), (4_000, 1_500), (1, 1)]
)
def test_connections_leave_files_for_the_rest_of_the_process(
    soft: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert limits.connections(10_000) == most
