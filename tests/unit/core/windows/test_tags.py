"""Tags of window timers: what is built is taken apart again."""

from __future__ import annotations

import pytest

from millwheel.core.windows.tags import share_of, share_tag, tag_of, window_of, without_share
from millwheel.core.windows.windows import Window


@pytest.mark.parametrize("slot", [Window(-60_000_000, 0), 17])
def test_a_tag_with_a_share_says_both_the_window_and_the_share(slot: Window | int) -> None:
    tag = share_tag(slot, 0.995)
    assert share_of(tag) == 0.995
    assert without_share(tag) == tag_of(slot)
    assert window_of(tag) == (slot if isinstance(slot, Window) else None)
    assert share_of(tag_of(slot)) is None


def test_tags_look_as_they_always_did_because_they_are_stored() -> None:
    assert tag_of((0, 60)) == "0,60"
    assert tag_of(7) == "7"
    assert share_tag((0, 60), 0.9) == "0,60%0.9"


@pytest.mark.parametrize("tag", ["", "mine", "a,b", "1,"])
def test_other_tags_name_no_window(tag: str) -> None:
    assert window_of(tag) is None
