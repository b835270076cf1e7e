from hypothesis import given
from hypothesis import strategies as st

from millwheel.engine.workers.loop.pace import StepPace


def test_a_balanced_worker_rests_three_times_its_work_and_not_after_a_long_step() -> None:
    pace = StepPace(None)
    assert pace.rest_us(0, 100) == 300
    assert pace.rest_us(0, 700) == 2_100
    assert pace.rest_us(0, 1_500) == 2_900
    assert pace.rest_us(0, 4_400) == 0
    assert pace.rest_us(0, 50_000) == 0


def test_steps_begin_a_chosen_time_apart() -> None:
    assert StepPace(2_000).rest_us(0, 700) == 1_300
    assert StepPace(2_000).rest_us(0, 2_100) == 0
    assert StepPace(20_000).rest_us(0, 700) == 19_300


def test_a_step_that_did_much_is_followed_at_once_under_any_setting() -> None:
    assert StepPace(20_000).rest_us(0, 5_000) == 0


def test_after_a_long_step_rests_are_as_short_as_steps_for_three_times_as_long() -> None:
    for pace, rest_us in ((StepPace(None), 3_000), (StepPace(20_000), 19_000), (StepPace(0), 0)):
        assert pace.rest_us(0, 19_000) == 0
        assert pace.rest_us(19_000, 20_000) == rest_us
        assert pace.rest_us(20_000, 50_000) == 0
        assert (
            pace.rest_us(100_000, 101_000) == pace.rest_us(138_999, 139_999) == min(rest_us, 1_000)
        )
        assert pace.rest_us(139_000, 140_000) == rest_us


@given(st.integers(0, 10**6))
def test_greedy_never_rests(took_us: int) -> None:
    assert StepPace() == StepPace(0)
    assert StepPace(0).rest_us(0, took_us) == 0


@given(st.integers(0, 10**6), st.sampled_from([None, 2_000, 20_000]))
def test_no_rest_is_negative_or_longer_than_the_setting(took_us: int, apart_us: int | None) -> None:
    assert 0 <= StepPace(apart_us).rest_us(0, took_us) <= (apart_us or 4_400)
