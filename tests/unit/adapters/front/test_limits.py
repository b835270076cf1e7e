from __future__ import annotations

import pytest

from millwheel.adapters.front import limits
from millwheel.adapters.front.limits import FrontLimits


@pytest.mark.parametrize(
    "of", [limits.exchange, limits.metrics, limits.queries, limits.page, limits.gateway, limits.http_source]
)
def test_every_listener_has_room_for_somebody_and_an_end_to_every_wait(of) -> None:  # type: ignore[no-untyped-def]
    found: FrontLimits = of()
    assert min(found.strangers, found.most, found.per_address) >= 1
    assert 0 < found.grace_s < found.silent_s <= found.head_s <= found.answer_s
    assert found.per_address <= max(found.most, found.strangers)
