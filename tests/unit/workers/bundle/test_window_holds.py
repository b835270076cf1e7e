from millwheel.core.model.keys import key_hash
from millwheel.core.windowing.contract import HoldEffect
from millwheel.workers.bundle.window_holds import WindowHolds
from millwheel.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore


def test_the_lowest_hold_is_that_of_the_watermark_and_another_owner_finds_it() -> None:
    overlay = Overlay(SimStore({}))
    holds = WindowHolds(overlay, key_hash)
    assert holds.lowest().at == WindowHolds(overlay, key_hash).lowest().at
    holds.take([HoldEffect("a", "0,10", 5), HoldEffect("b", "0,20", 3), HoldEffect(("c", 1), "0,30", 4)])
    holds.take([HoldEffect("b", "0,20", None)])
    holds.write()
    assert holds.lowest().holder == "window 0,30 of key ('c', 1), which outputs at 4"
    assert WindowHolds(overlay, key_hash).lowest() == holds.lowest()


def test_a_hold_that_is_withdrawn_is_stored_no_more() -> None:
    overlay = Overlay(SimStore({}))
    holds = WindowHolds(overlay, key_hash)
    holds.take([HoldEffect("a", "0,10", 5)])
    holds.write()
    holds.take([HoldEffect("a", "0,10", None)])
    holds.write()
    assert (
        WindowHolds(overlay, key_hash).lowest()
        == holds.lowest()
        == WindowHolds(Overlay(SimStore({})), key_hash).lowest()
    )
