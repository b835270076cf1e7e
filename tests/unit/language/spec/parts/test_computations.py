"""``computations:``: inputs and keys, outputs, the guarantee dial, and what belongs to which
kind."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.model.failures import DEAD_LETTER, STOP, OnError
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import ComputationSpec, Delivery, InputSpec, Productions

_CALLBACK = {"input": "hits", "callback": "detectors:SpikeDetector", "output": "out"}
_WINDOW = {
    "input": "{hits: {key: path}}",
    "window": "{tumbling: 1m}",
    "aggregate": "{n: count}",
    "output": "out",
}
_BY_RECORD = KeySpec(KeyKind.RECORD)


def _pipeline(form: dict[str, str], **changed: str | None) -> str:
    fields = {name: text for name, text in {**form, **changed}.items() if text is not None}
    lines = "".join(f"    {name}: {text}\n" for name, text in fields.items())
    sources = "".join(
        f"  {name}: {{source: injection, timestamp: ts}}\n" for name in ("hits", "clicks")
    )
    return f"pipeline: p\nstreams:\n{sources}computations:\n  c:\n{lines}"


@pytest.fixture
def callback(check: Any) -> Any:
    return lambda **changed: check(_pipeline(_CALLBACK, **changed)).computations[0]


@pytest.fixture
def window(check: Any) -> Any:
    return lambda **changed: check(_pipeline(_WINDOW, **changed)).computations[0]


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("hits", [("hits", _BY_RECORD)]),
        ("[hits, clicks, hits]", [("hits", _BY_RECORD), ("clicks", _BY_RECORD)]),
        ("{hits: {}, clicks: }", [("hits", _BY_RECORD), ("clicks", _BY_RECORD)]),
        ("{hits: {key: path}}", [("hits", KeySpec(KeyKind.FIELD, ("path",)))]),
        ("{hits: {key: [path]}}", [("hits", KeySpec(KeyKind.FIELD, ("path",)))]),
        ("{hits: {key: [a, b]}}", [("hits", KeySpec(KeyKind.FIELDS, ("a", "b")))]),
        (
            "{hits: {key: detectors:by_user}}",
            [("hits", KeySpec(KeyKind.FUNCTION, ("detectors:by_user",)))],
        ),
    ],
)
def test_each_input_has_the_key_that_the_consumer_chooses(
    callback: Any, text: str, inputs: list[Any]
) -> None:
    assert callback(input=text).inputs == tuple(InputSpec(*given) for given in inputs)


def test_outputs_are_none_one_or_several(callback: Any) -> None:
    assert callback(output=None).outputs == ()
    assert callback(output="[x, y, x]").outputs == ("x", "y")


def test_the_dials(callback: Any) -> None:
    plain = callback()
    assert (plain.delivery, plain.productions) == (Delivery.EXACTLY_ONCE, Productions.STRONG)
    assert (plain.max_attempts, plain.shards, plain.standby) == (3, None, 0)
    assert plain.on_error == OnError(0.1, 100)
    given = callback(
        delivery="at_least_once", productions="weak", max_attempts="5", shards="8", standby="1"
    )
    assert (given.delivery, given.productions) == (Delivery.AT_LEAST_ONCE, Productions.WEAK)
    assert (given.max_attempts, given.shards, given.standby) == (5, 8, 1)


@pytest.mark.parametrize(
    ("written", "policy"),
    [
        ("dead_letter", DEAD_LETTER),
        ("stop", STOP),
        ("{stop_above: 0.5%}", OnError(0.005, 100)),
        ("{stop_above: 25%, of_at_least: 7}", OnError(0.25, 7)),
    ],
)
def test_what_failures_come_to_is_a_word_or_a_share(
    callback: Any, written: str, policy: OnError
) -> None:
    assert callback(on_error=written).on_error == policy


def test_options_reach_the_constructor(callback: Any) -> None:
    assert callback(options="{threshold: 2.5}").called.options == {"threshold": 2.5}


def test_a_window_may_collect_its_records_without_aggregates(window: Any) -> None:
    assert window(aggregate=None).aggregates == ()


def test_all_that_belongs_to_a_window(window: Any) -> None:
    found: ComputationSpec = window(
        where="status < 500",
        trigger="{after_watermark: {early: {after_count: 2}, late: {after_count: 1}}}",
        accumulation="accumulating",
        allowed_lateness="1h",
        output_time="earliest",
        late="side:late_hits",
    )
    assert (found.condition, found.firing.accumulation, found.firing.output_time) == (
        "status < 500",
        "accumulating",
        "earliest",
    )
    assert (found.firing.allowed_lateness_us, found.late, found.outputs) == (
        3_600_000_000,
        "side:late_hits",
        ("out",),
    )
    assert found.firing.trigger == {
        "after_watermark": {"early": {"after_count": 2}, "late": {"after_count": 1}}
    }


def test_the_stream_of_late_records_can_be_consumed(check: Any) -> None:
    more = "  d: {input: late_hits, callback: detectors:SpikeDetector}\n"
    assert (
        check(_pipeline(_WINDOW, late="{side: late_hits}") + more).computations[0].late
        == "side:late_hits"
    )


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"input": None}, "computations.c.input: is missing"),
        ({"input": "{}"}, "computations.c.input: is missing"),
        ({"input": "[hits, [x]]"}, "computations.c.input[1]: must be text, not a list"),
        ({"input": "{hits: path}"}, "write {key: path} to take the key from there"),
        ({"input": "{hits: {key: []}}"}, "names no fields"),
        ({"input": "{hits: {key: 'a:b c'}}"}, "neither a field nor module:function"),
        ({"input": "{hits: {key: detectors:nothing}}"}, "input.hits.key: module 'detectors'"),
        ({"input": "{hi ts: {}}"}, "'hi ts' cannot be the name of a stream"),
        ({"output": "{a: b}"}, "computations.c.output: must be the name of a stream or a list"),
        ({"output": "a b"}, "write for example a_b"),
        ({"callback": None}, "computations.c: does nothing; write callback"),
        ({"callback": "[x]"}, "computations.c.callback: must be text, not a list"),
        ({"options": "{treshold: 4}"}, "it takes threshold"),
        ({"options": "3"}, "computations.c.options: must be a map"),
        ({"where": "a == 1"}, "computations.c.where: where is for computations with a window"),
        (
            {"window": "{tumbling: 1m}"},
            "SpikeDetector has none: computations with a window call process_window",
        ),
        (
            {"callback": "detectors:Funnel"},
            "no process_record(self, ctx, record) method; add one, or give the comp",
        ),
        (
            {"window": "{tumbling: 1m}", "aggregate": "{n: count}"},
            "gets the records themselves (process_window)",
        ),
        (
            {"window": "{tumbling: 1m}", "accumulation": "retracting"},
            "cannot be taken back; write accumulating",
        ),
        ({"window": "{tumbling: 1m}", "map": "{a: b}"}, "map is for computations with steps"),
        (
            {"callback": "detectors:Funnel", "window": "{count: 5}", "allowed_lateness": "1m"},
            "computations.c.window: count windows fire when they are full",
        ),
        (
            {"delivery": "once"},
            "computations.c.delivery: must be one of exactly_once, at_least_once",
        ),
        ({"productions": "week"}, "did you mean 'weak'?"),
        ({"max_attempts": "0"}, "must be a whole number from 1 to 1000, not 0"),
        (
            {"on_error": "ignore"},
            "on_error: must be dead_letter, stop, or for example {stop_above: 10%",
        ),
        (
            {"on_error": "{stop_above: 10}"},
            "on_error.stop_above: must be a share from 0% to below 100%",
        ),
        (
            {"on_error": "{stop_above: 100%}"},
            "to continue whatever fails, write on_error: dead_letter",
        ),
        ({"on_error": "{of_at_least: 0}"}, "must be a whole number from 1"),
        ({"shards": "'8'"}, "must be a whole number from 1 to 4096, not '8'"),
        ({"standby": "2"}, "must be a whole number from 0 to 1, not 2"),
        ({"shards": "true"}, "must be a whole number"),
    ],
)
def test_mistakes_in_a_callback_are_named(
    problems: Any, changed: dict[str, str | None], expected: str
) -> None:
    assert expected in "\n".join(problems(_pipeline(_CALLBACK, **changed)))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"output": None}, "computations.c.output: is missing"),
        ({"output": "[a, b]"}, "a computation with a window has one output"),
        ({"options": "{a: 1}"}, "this computation has no callback"),
        ({"where": "a = 1"}, "computations.c.where: column 1: compare with == instead of ="),
        ({"where": "[a]"}, "computations.c.where: must be text"),
        ({"accumulation": "accumulate"}, "did you mean 'accumulating'?"),
        ({"allowed_lateness": "10"}, "must be a duration, not 10"),
        ({"output_time": "end"}, "must be one of end_of_window, earliest, latest"),
        ({"late": "side"}, "must be drop, refire or side:STREAM, not 'side'"),
        ({"late": "drob"}, "did you mean 'drop'?"),
        ({"late": "{site: x}"}, "unknown field 'site'; did you mean 'side'?"),
        ({"late": "side:a.b"}, "must be drop, refire or side:STREAM"),
        (
            {"late": "refire", "accumulation": "accumulating"},
            "computations.c.window: late: refire makes a pane",
        ),
    ],
)
def test_mistakes_in_a_window_computation_are_named(
    problems: Any, changed: dict[str, str | None], expected: str
) -> None:
    (found,) = problems(_pipeline(_WINDOW, **changed))
    assert expected in found
