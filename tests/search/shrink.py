"""Makes a failing case short: fewer computations, options, pushes and fields, as long as it still
fails; and tells it as a person reads it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from millwheel.errors import PipelineError
from tests.search.document import emit, parse
from tests.search.generate.pushes import LAST_CLOCK, NOW
from tests.search.script import Action, Case, Clock, Finish, Push, Watermark
from tests.search.variants import BASE, Finding, attempt, examine, judge, option_for

_KEPT = frozenset({"input", "output", "source", "timestamp"})
_MEANING = frozenset({"unit"})
"""What no part may lose: without it the same numbers mean something else."""


def shrunk(finding: Finding, seconds: float = 25) -> Finding:
    """The shortest failing case found in that time."""
    if finding.case.refused:
        return finding  # Without some of it, it need not be refused.
    best, ends = finding, time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for case in _smaller(best.case):
            if time.monotonic() > ends:
                break
            found = _fails(case, best)
            if found is not None:
                best, progress = found, True
                break
    return best


def _fails(case: Case, last: Finding) -> Finding | None:
    try:
        spec = case.spec()
    except PipelineError:
        return None
    if last.way == BASE:
        return next(iter(examine(case, ())), None)
    want = attempt(case, BASE, spec)
    if isinstance(want, str):
        return None
    found = judge(case, last.way, spec, want)
    same = found is not None and _kind(found) == _kind(last)
    return found if same else None


def _kind(finding: Finding) -> str:
    """What a difference is about, so that shrinking does not wander off to another one."""
    first = finding.differences[0]
    return "ends" if first.startswith("the run ends") else first.split(" ")[0]


def _smaller(case: Case) -> Iterator[Case]:
    yield from (case.with_script(script) for script in _scripts(case.script))
    tree = parse(case.yaml)
    for smaller in _trees(tree):
        yield replace(case, yaml=emit(smaller))
    yield from (case.with_script(script) for script in _finer(case.script))


def _scripts(script: tuple[Action, ...]) -> Iterator[tuple[Action, ...]]:
    size = len(script) // 2
    while size:
        for start in range(0, len(script), size):
            smaller = _whole(script[:start] + script[start + size :])
            if smaller != script:  # else it would count as progress for ever
                yield smaller
        size //= 2


def _whole(script: tuple[Action, ...]) -> tuple[Action, ...]:
    """What waits for the clock must fire before the end, as in every script that is drawn."""
    if not script or not isinstance(script[-1], Finish):
        return script
    if len(script) > 1 and isinstance(script[-2], Clock):
        return script
    last = max((action.t for action in script if isinstance(action, Clock)), default=NOW)
    return (*script[:-1], Clock(last + LAST_CLOCK), script[-1])


def _finer(script: tuple[Action, ...]) -> Iterator[tuple[Action, ...]]:
    """Single records and fields left out."""
    for index, action in enumerate(script):
        if not isinstance(action, Push):
            continue
        for number in range(len(action.values)):
            if len(action.values) > 1:
                yield _changed(script, index, action.values[:number] + action.values[number + 1 :])
        for number, value in enumerate(action.values):
            for less in _values(value):
                yield _changed(
                    script, index, (*action.values[:number], less, *action.values[number + 1 :])
                )


def _values(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in ("do", "id", "u"):
        if name in value:
            yield {key: part for key, part in value.items() if key != name}
    for number in range(len(value.get("do", ()))):
        yield {**value, "do": value["do"][:number] + value["do"][number + 1 :]}


def _changed(script: tuple[Action, ...], index: int, values: tuple[Any, ...]) -> tuple[Action, ...]:
    action = script[index]
    assert isinstance(action, Push)
    return (*script[:index], replace(action, values=values), *script[index + 1 :])


def _trees(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for part in ("sinks", "computations", "streams"):
        inner = tree.get(part, {})
        for name in inner:
            yield {**tree, part: {other: value for other, value in inner.items() if other != name}}
    for part in ("computations", "streams"):
        inner = tree.get(part, {})
        for name, options in inner.items():
            for less in _options(options):
                yield {**tree, part: {**inner, name: less}}


def _options(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in options:
        if name not in _KEPT:
            yield {other: value for other, value in options.items() if other != name}
    for name, value in options.items():
        if isinstance(value, dict) and name != "source":
            for key in value:
                if len(value) > 1 and key not in _MEANING:
                    yield {
                        **options,
                        name: {other: part for other, part in value.items() if other != key},
                    }


def tell(finding: Finding) -> str:
    """The whole story."""
    case = finding.case
    way = option_for(case.seed, finding.way)
    lines = [f"python -m tests.search --seed {case.seed}{way}", "", case.yaml.rstrip(), ""]
    if case.now is not None:
        lines.append(f"the clock shows {case.now}")
    if not case.stated:
        lines.append("watermarks follow max_delay and idle_after")
    lines += map(_line, case.script)
    lines += [
        "",
        f"{finding.way}",
        "differs from one record at a time (what that gives comes first):",
    ]
    return "\n".join([*lines, *(f"  {each}" for each in finding.differences[:6])])


def _line(action: Action) -> str:
    match action:
        case Push():
            index = "" if action.partition == "pushed" else f" ({action.partition})"
            return f"push {action.stream}{index}: " + ", ".join(map(str, action.values))
        case Watermark():
            where = "".join(f" {part}" for part in (action.stream, action.partition) if part)
            return f"watermark{where}: {action.t}"
        case Clock():
            return f"clock: {action.t}"
        case Finish():
            return f"finish {action.stream or ''}".rstrip()
