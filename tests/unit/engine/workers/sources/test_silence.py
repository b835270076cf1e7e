from __future__ import annotations

from millwheel.core.model.times import SECOND, idle_progress
from millwheel.engine.workers.sources.silence import Silence


def test_silence_moves_the_watermark_in_small_steps_first_and_always_forward() -> None:
    heard = [idle_progress(silent) for silent in range(0, 30 * SECOND, 50_000)]
    assert heard == sorted(heard)
    assert heard[-1] == 29 * SECOND
    assert len(set(heard)) == 20 * 4 + 10


def test_silence_is_what_looks_have_found() -> None:
    silence = Silence(5 * SECOND, 0)
    for second in range(1, 7):
        assert not silence.idle
        silence.nothing(second * SECOND)
    assert silence.idle
    assert silence.progress_us == silence.lasted_us == 6 * SECOND
    silence.records_came(7 * SECOND)
    assert (silence.idle, silence.progress_us) == (False, 0)


def test_after_a_gap_between_looks_who_slept_as_well_has_time_to_speak() -> None:
    silence = Silence(5 * SECOND, 0)
    silence.nothing(SECOND)
    silence.nothing(60 * SECOND)
    assert not silence.idle
    for second in range(61, 67):
        silence.nothing(second * SECOND)
    assert silence.idle
    assert silence.lasted_us == 66 * SECOND


def test_who_is_looked_at_closely_has_no_gaps() -> None:
    silence = Silence(5 * SECOND, 0)
    silence.nothing(60 * SECOND, closely=True)
    assert silence.idle
    assert silence.in_words() == "idle for 1m"


def test_without_a_limit_nothing_is_ever_idle() -> None:
    silence = Silence(None, 0)
    for second in range(1, 600):
        silence.nothing(second * SECOND)
    assert (silence.idle, silence.progress_us, silence.lasted_us) == (False, 0, 599 * SECOND)
