"""A case in columns and in rows, and how they differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from statistics import median

from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import TopSpec, WindowedSpec
from millwheel.core.windows.panes import RETRACTION_FIELD, as_retraction
from tests.search.forms.drawing import case
from tests.search.running import Way, run
from tests.search.script import Case, Outcome, Push, Row

ROWS = Way("rows", columns=False)
WAYS = (
    Way("columns"),
    Way("columns in twos", together=2, bundle=2),
    Way("columns, grouped by senders", combined=True, shards=2, workers=2),
    Way("columns, with crashes", crash_every=9, service_lives=True),
    Way("few in rows", few=200, shards=2, workers=2),
    Way("now few, now many", few=3, crash_every=25, service_lives=True),
)
_COUNTED = ("late", "dead_letters", "records_in")


def ways_of(seed: int) -> tuple[Way, ...]:
    """The first way, and one of the others."""
    return WAYS[0], WAYS[1 + seed % (len(WAYS) - 1)]


def failure(seed: int) -> str:
    """How a seed differs between its forms; "" where it does not."""
    return difference(case(seed), ways_of(seed))


def difference(drawn: Case, ways: tuple[Way, ...]) -> str:
    """The first difference between rows and one of the ways."""
    spec = drawn.spec()
    want = seen(run(drawn, ROWS, spec), spec)
    for way in ways:
        if way.shards > 1 and _counts_in_chance_order(spec):
            continue
        try:
            found = seen(run(drawn, way, spec), spec)
        except Exception as ex:  # whatever ends a run is a finding
            return f"{way.name}: the run ends with {type(ex).__name__}: {ex}"
        if want != found:
            if way.crash_every is not None and _late(want) != _late(found) and _leaps(drawn, spec):
                continue
            missing, extra = want - found, found - want
            return (
                f"{way.name}: missing {list(missing.elements())[:4]}; too many"
                f" {list(extra.elements())[:4]}"
            )
    return ""


def _counts_in_chance_order(spec: PipelineSpec) -> bool:
    """Whether windows of so many records take results of other keys, which come from any shard in
    any order."""
    makers = {stream: each for each in spec.computations for stream in each.outputs}
    for each in spec.computations:
        if not isinstance(each.work, WindowedSpec) or each.work.window.kind != "count":
            continue
        own = each.inputs[0]
        maker = makers.get(own.stream)
        while maker is not None:
            key = maker.inputs[0].key
            if key.kind is not KeyKind.RECORD and key != own.key:
                return True
            maker = makers.get(maker.inputs[0].stream)
    return False


def _late(outcome: Counter[str]) -> list[str]:
    return sorted(text for text in outcome if " late: " in text)


def _leaps(drawn: Case, spec: PipelineSpec) -> bool:
    """Whether a time lies so far ahead that all that is read behind it is late. What comes together
    with it is not; but after a crash a source may read its records one at a time."""
    for stream in spec.streams:
        times = [
            value[stream.timestamp]
            for action in drawn.script
            if isinstance(action, Push) and action.stream == stream.name
            for value in action.values
            if type(value.get(stream.timestamp)) is int
        ]
        if times and max(times) > 2 * median(times):
            return True
    return False


def seen(outcome: Outcome, spec: PipelineSpec) -> Counter[str]:
    """All that must be equal, as text: so 0.0 is not -0.0, and 1 is not 1.0. Of a change log, and
    of what is made of its versions, that are the last rows of each key."""
    logs, nodes = _versions(spec)
    first = {name for each in spec.computations if _keeps_first(each) for name in each.outputs}
    nodes |= {f"sink.{name}" for name in first}
    rows = [
        f"{name}: {row.key!r} at {row.timestamp}: {row.value!r}"
        for name in outcome.streams
        for row in (_folded if name in logs else tuple)(outcome.streams[name])
        if name not in first
    ]
    rows += [row for name in first & outcome.streams.keys() for row in _left(outcome.streams[name])]
    letters = [
        f"letter of {each.where}: {_plain(each.reason)}"
        for each in outcome.letters
        if each.where not in nodes
    ]
    counters = [
        f"{node} {name}: {found[name]}"
        for node, found in outcome.counters.items()
        for name in _COUNTED
        if name in found and node not in nodes
    ]
    return Counter([*rows, *letters, *counters])


def _versions(spec: PipelineSpec) -> tuple[set[str], set[str]]:
    """The streams of versions, and the nodes that get them."""
    streams: set[str] = set()
    nodes: set[str] = set()
    for _ in spec.computations:
        for each in spec.computations:
            if any(given.stream in streams for given in each.inputs):
                nodes.add(each.name)
                streams.update(each.outputs)
            if each.is_change_log:
                streams.update(each.outputs)
    return streams, nodes | {f"sink.{name}" for name in streams}


def _folded(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Without what was taken back or replaced."""
    last: dict[str, Row] = {}
    for row in rows:
        if RETRACTION_FIELD in row.value:
            last.pop(repr(row.key), None)
        else:
            last[repr(row.key)] = row
    return tuple(last.values())


def _keeps_first(spec: ComputationSpec) -> bool:
    return isinstance(spec.work, TopSpec)


def _left(rows: Iterable[Row]) -> Iterable[str]:
    """The first rows of each key that have not been taken back."""
    left: Counter[str] = Counter()
    for row in rows:
        back = as_retraction(row.value)
        value = row.value if back is None else back.value
        left[f"{row.key!r}: {value!r}"] += 1 if back is None else -1
    return (f"{count} times first, {text}" for text, count in left.items() if count)


def _plain(reason: str) -> str:
    return re.sub(r"line \d+", "line", reason)
