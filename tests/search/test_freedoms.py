"""What the documents leave free is not compared, and what is next to it still is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.search.facts import Facts, Free, Level, Order
from tests.search.freedoms import promised
from tests.search.script import Action, Case, Clock, Finish, Push, Watermark
from tests.search.variants import VARIANTS, free_of

SECOND = 1_000_000
NOW = 1_200 * SECOND
HITS = (
    "pipeline: p\nstreams:\n  hits: {source: {injection: {}}, timestamp: at}\ncomputations:\n  c: "
)
COPIES = HITS + "{input: {hits: {key: k}}, deduplicate: {within: 10s}, output: c}\n"
COUNTS = HITS + "{input: {hits: {key: k}}, window: {count: 2}, output: c}\n"
PANES = (
    HITS
    + "{input: {hits: {key: k}}, window: {tumbling: 10s}, aggregate: {n: count}, trigger: {repeat: "
    "{after_count: 3}}, accumulation: retracting, output_time: latest, output: c}\n"
)
SEMI = (
    HITS.replace(
        "computations:", "  clicks: {source: {injection: {}}, timestamp: at}\ncomputations:"
    )
    + "{input: {hits: {key: k}, clicks: {key: k}}, window: {tumbling: 10s}, join: semi, trigger: "
    "{repeat: {after_count: 2}}, output: c}\n"
)
ONE = Push("hits", ({"at": 1_000 * SECOND, "k": "a"},))
OTHER = Push("hits", ({"at": 900 * SECOND, "k": "a"},), "other")
THEN = (Clock(NOW + 60 * SECOND), Finish())


def _facts(yaml: str, way: str, *script: Action, **options: Any) -> Facts:
    case = Case(1, yaml, script, now=NOW, **options)
    spec = case.spec()
    return promised(spec, case.stated, free_of(VARIANTS[way], case, spec)).streams["c"]


@pytest.mark.parametrize(
    ("stated", "level"),
    [pytest.param(False, Level.NOTHING, id="silence"), pytest.param(True, Level.ALL, id="stated")],
)
def test_copies_behind_a_watermark_that_silence_moved_are_free_after_a_crash(
    stated: bool, level: Level
) -> None:
    assert _facts(COPIES, "crashes", ONE, *THEN, stated=stated).level is level


def test_what_a_counting_join_has_not_counted_at_the_end_of_its_window_is_free() -> None:
    assert _facts(SEMI, "together", ONE, *THEN).level is Level.NOTHING
    each = SEMI.replace("after_count: 2", "after_count: 1")
    assert _facts(each, "together", ONE, *THEN).level is Level.ALL
    ended = SEMI.replace("repeat:", "after_watermark: {early: {repeat:").replace("2}}", "2}}}}")
    assert _facts(ended, "together", ONE, *THEN).level is Level.ALL


def test_whether_a_new_partition_is_behind_the_watermark_is_free_after_a_crash() -> None:
    move = Watermark(1_000 * SECOND)
    assert _facts(COUNTS, "crash", ONE, move, OTHER, *THEN).level is Level.NOTHING
    assert _facts(COUNTS, "crash", OTHER, ONE, move, OTHER, *THEN).level is Level.ALL
    assert _facts(COUNTS, "uncached", ONE, move, OTHER, *THEN).level is Level.ALL


def test_a_copy_whose_id_was_forgotten_may_be_noticed_after_a_crash() -> None:
    yaml = COUNTS.replace("timestamp: at", "timestamp: at, id: {field: k, horizon: 30s}")
    near, far = Watermark(1_020 * SECOND), Watermark(1_100 * SECOND)
    assert _facts(yaml, "crash", ONE, far, ONE, *THEN).level is Level.NOTHING
    assert _facts(yaml, "crash", ONE, near, ONE, far, *THEN).level is Level.ALL
    assert _facts(yaml, "uncached", ONE, far, ONE, *THEN).level is Level.ALL


def test_a_late_copy_that_comes_with_what_moves_the_watermark_may_be_noticed() -> None:
    yaml = HITS.replace("timestamp: at", "timestamp: at, id: {field: k, horizon: 30s}")
    log = yaml + "{input: {hits: {key: k}}, aggregate: {n: count}, output: c}\n"
    far = Push("hits", ({"at": 1_100 * SECOND, "k": "b"},))
    assert _facts(log, "together", ONE, far, ONE, *THEN, stated=False).level is Level.NOTHING
    assert _facts(log, "together", ONE, ONE, far, *THEN, stated=False).level is Level.STANDING
    assert _facts(log, "together", ONE, far, ONE, *THEN).level is Level.STANDING
    window = log.replace("aggregate", "window: {tumbling: 10s}, aggregate")
    assert _facts(window, "together", ONE, far, ONE, *THEN, stated=False).level is Level.ALL


def test_a_weak_production_whose_id_was_forgotten_may_come_twice_after_a_crash() -> None:
    yaml = HITS + (
        "{input: {hits: {key: k}}, steps: [{filter: k == 'a'}], productions: weak, output: c}\n"
    )
    near, far = Watermark(4_500 * SECOND), Watermark(4_700 * SECOND)
    assert _facts(yaml, "crash", ONE, far, ONE, *THEN).doubled
    assert not _facts(yaml, "crash", ONE, near, ONE, far, *THEN).doubled
    assert not _facts(yaml, "bundles", ONE, far, ONE, *THEN).doubled
    strong = yaml.replace("productions: weak, ", "")
    assert not _facts(strong, "crash", ONE, far, ONE, *THEN).doubled


def test_which_records_are_new_in_the_last_pane_is_free_but_not_its_value() -> None:
    facts = _facts(PANES, "bundles", ONE, *THEN)
    assert (facts.level, facts.timed) == (Level.STANDING, False)
    assert _facts(PANES.replace("output_time: latest, ", ""), "bundles", ONE, *THEN).timed


def test_what_a_window_still_keeps_is_free_while_input_does_not_end() -> None:
    assert _facts(PANES, "bundles", ONE).level is Level.NOTHING


def test_which_session_speaks_first_at_one_moment_of_the_clock_is_free() -> None:
    yaml = PANES.replace("{tumbling: 10s}", "{session: 5s}").replace(
        "{after_count: 3}", "{after_processing_time: 9s}"
    )
    assert _facts(yaml, "bundles", ONE, *THEN).order is Order.NONE
    # so it is in one way: the reference does not know the numbers of sessions
    assert _facts(yaml, "uncached", ONE, *THEN).order is Order.NONE
    assert _facts(yaml.replace("session", "tumbling"), "bundles", ONE, *THEN).order is Order.KEY


@pytest.mark.parametrize(
    ("trigger", "level"),
    [
        pytest.param(
            "after_watermark: {late: {after_processing_time: 3s}}", Level.STANDING, id="late"
        ),
        pytest.param(
            "after_watermark: {early: {after_processing_time: 3s}}", Level.NOTHING, id="closed"
        ),
        pytest.param("repeat: {after_processing_time: 3s}", Level.ALL, id="by the clock"),
    ],
)
def test_a_window_made_behind_its_end_fires_for_its_first_bundle(
    trigger: str, level: Level
) -> None:
    yaml = PANES.replace("repeat: {after_count: 3}", f"{trigger}").replace(
        "output_time: latest", "allowed_lateness: 1m"
    )
    assert _facts(yaml, "bundles", ONE, *THEN, stated=True).level is level
    assert _facts(yaml, "uncached", ONE, *THEN, stated=True).level is Level.ALL
    timely = yaml.replace("allowed_lateness: 1m, ", "")
    assert _facts(timely, "bundles", ONE, *THEN, stated=True).level is Level.ALL


def test_nothing_is_free_without_a_difference() -> None:
    case = Case(1, PANES, (ONE, *THEN))
    assert promised(case.spec(), True, Free(bundling=False)).streams["c"].level is Level.ALL


@pytest.mark.parametrize(
    ("also", "level"),
    [
        pytest.param("hits", Level.ALL, id="once"),
        pytest.param("both", Level.STANDING, id="by two ways"),
    ],
)
def test_a_record_that_comes_by_two_ways_may_be_one_bundle_or_two(also: str, level: Level) -> None:
    inputs = {"hits": "hits: {key: k}", "both": "hits: {key: k}, b: {key: k}"}[also]
    yaml = (
        PANES.replace("hits: {key: k}", inputs)
        + "  b: {input: {hits: {key: k}}, filter: k == 'a', output: b}\n"
    )
    case = Case(1, yaml, (ONE, *THEN))
    assert promised(case.spec(), True, Free(bundling=False)).streams["c"].level is level


@pytest.mark.parametrize(
    ("step", "level"),
    [
        pytest.param("flat_map: callbacks:doubled", Level.NOTHING, id="several results"),
        pytest.param("map: callbacks:common", Level.ALL, id="one result"),
    ],
)
def test_the_results_of_one_record_are_one_bundle(step: str, level: Level) -> None:
    yaml = HITS.replace("c: ", f"f: {{input: {{hits: {{key: k}}}}, {step}, output: f}}\n  c: ")
    yaml += (
        "{input: {f: {key: k}}, window: {tumbling: 10s}, aggregate: {n: count}, trigger: {repeat: "
        "{after_count: 3}}, accumulation: discarding, output: c}\n"
    )
    case = Case(1, yaml, (ONE, *THEN), now=NOW)
    assert promised(case.spec(), True, Free(bundling=False)).streams["c"].level is level


def test_dead_letters_may_come_twice_where_productions_may() -> None:
    weak = (
        HITS + "{input: {hits: {key: k}}, steps: [{filter: x > 0}], delivery: at_least_once,"
        " productions: weak, output: c}\n"
    )
    case = Case(1, weak, (ONE, *THEN), now=NOW)
    spec = case.spec()
    assert [
        promised(spec, case.stated, free_of(VARIANTS[way], case, spec)).doubled
        for way in ("crashes", "bundles")
    ] == [{"c"}, set()]


def test_last_panes_of_windows_come_as_steps_and_bundles_have_it() -> None:
    yaml = HITS + "{input: {hits: {key: k}}, window: {tumbling: 10s}, aggregate: {n: count}"
    again = yaml + ", trigger: never, allowed_lateness: 1m, output: c}\n"
    once = yaml + ", output: c}\n"
    for way in ("divided", "uncached"):
        assert _facts(again, way, ONE, *THEN, stated=True).order is Order.NONE
        assert _facts(once, way, ONE, *THEN, stated=True).order is Order.KEY


SILENCE = Clock(NOW + 20 * SECOND)


@pytest.mark.parametrize(
    "work",
    [
        pytest.param("over: {rows: 5}, aggregate: {m: {sum: n}}", id="over"),
        pytest.param("join: {kind: inner, within: {before: 1s, after: 5s}}", id="interval join"),
    ],
)
def test_a_record_behind_a_silent_watermark_races_what_was_made_of_it(work: str) -> None:
    filtered = "  b: {input: {hits: {key: k}}, filter: k == 'a', output: b}\n"
    yaml = HITS.replace("  c: ", filtered + "  c: ") + f"{{input: INPUT, {work}, output: c}}\n"
    both = yaml.replace("INPUT", "{hits: {key: k}, b: {key: k}}")
    silent = ONE, SILENCE, ONE, *THEN
    assert _facts(both, "bundles", *silent, stated=False).level is Level.NOTHING
    assert _facts(both, "bundles", *silent, stated=True).level is Level.ALL
    assert _facts(both, "bundles", ONE, ONE, *THEN, stated=False).level is Level.ALL
    if "over" in work:
        alone = yaml.replace("INPUT", "{b: {key: k}}")
        assert _facts(alone, "bundles", *silent, stated=False).level is Level.ALL


@pytest.mark.parametrize(
    ("key", "script", "level"),
    [
        pytest.param("[k, u]", (ONE, SILENCE, ONE), Level.NOTHING, id="behind silence"),
        pytest.param("[k, u]", (ONE, OTHER), Level.NOTHING, id="a new partition"),
        pytest.param("[k, u]", (ONE, ONE, SILENCE), Level.ALL, id="before the silence"),
        pytest.param("k", (ONE, SILENCE, ONE), Level.ALL, id="of one key"),
    ],
)
def test_look_backs_at_what_other_keys_sent_behind_silence_are_free(
    key: str, script: tuple[Action, ...], level: Level
) -> None:
    yaml = HITS.replace(
        "  c: ", f"  b: {{input: {{hits: {{key: {key}}}}}, filter: k, output: b}}\n  c: "
    )
    yaml += "{input: {b: {key: k}}, over: {rows: 5}, aggregate: {m: {sum: n}}, output: c}\n"
    assert _facts(yaml, "grouped", *script, *THEN, stated=False).level is level
