from __future__ import annotations

from millwheel.core.formats.store_layout import ENDED
from millwheel.workers.bundle.bundle import Bundle
from millwheel.workers.sources.source_end import SourceEnd
from millwheel.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore


def test_a_source_reads_until_it_rests_finishes_or_has_ended() -> None:
    end = SourceEnd(SimStore({}))
    assert not end.reads_nothing
    end.resting = True
    assert end.reads_nothing
    end.resting, end.finishing = False, True
    assert end.reads_nothing


def test_the_end_waits_until_all_that_was_read_is_applied() -> None:
    end = SourceEnd(SimStore({}))
    assert not end.due(True)
    end.finishing = True
    assert (end.due(False), end.due(True)) == (False, True)


def test_the_end_is_committed_once_and_no_later_owner_reads_on() -> None:
    store = SimStore({})
    end, overlay = SourceEnd(store), Overlay(store)
    end.finishing = True
    end.commit(Bundle(1, 0, 0, [], overlay, {}))
    assert (end.ended, end.due(True)) == (True, False)
    assert not SourceEnd(store).ended, "it is not durable before its commit"
    store.apply(*overlay.take())
    assert store.get(ENDED) is not None
    assert SourceEnd(store).reads_nothing
