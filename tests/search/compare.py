"""Whether two outcomes of a case are the same, as far as that is promised (see ``freedoms.py``)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from millwheel.core.pipeline.dictionaries import NUMBER
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.core.pipeline.work import CallbackSpec, DictionarySpec, SlicesSpec
from tests.search.facts import Facts, Level, Order
from tests.search.freedoms import Promised
from tests.search.script import Letter, Outcome, Row

_SHOWN = 4
_COUNTED = frozenset({"late", "dead_letters", "deduplicated", "unmatched", "seen", "records_in"})
_TAKES_BACK = "__retraction__"
_VISITOR = re.compile(rf'"{NUMBER}":\d+')


def differences(
    spec: PipelineSpec,
    promised: Promised,
    want: Outcome,
    got: Outcome,
    *,
    counted: bool = True,
    ordered: bool = True,
) -> list[str]:
    """A sentence for each part that differs. Without ``counted`` counters are not known, and no
    state but that of slices; without ``ordered`` the order of rows is not."""
    want, got = (with_names(spec, each) for each in (want, got))
    return [
        *_streams(promised, want, got, ordered),
        *_tables(promised, want, got),
        *_dead(spec, promised, want, got),
        *(_counters(spec, promised, want, got) if counted else ()),
        *_states(spec, promised, want, got, counted),
    ]


def with_names(spec: PipelineSpec, outcome: Outcome) -> Outcome:
    """The outcome with names for the numbers of dictionaries, which differ from run to run: the
    value, and the how-manieth of its numbers it is, in order of time. A number that two values have
    is left as it is."""
    streams = dict(outcome.streams)
    for each in spec.computations:
        given = each.work if isinstance(each.work, DictionarySpec) else None
        for stream in each.outputs if given is not None else ():
            if given is not None and given.keep:  # inside of uv: the value is not there any more
                streams.pop(stream, None)
            elif given is not None and stream in streams:
                streams[stream] = _named(streams[stream], given.of, given.name)
    return replace(outcome, streams=streams)


def _named(rows: tuple[Row, ...], of: str, name: str) -> tuple[Row, ...]:
    values: dict[int, set[str]] = defaultdict(set)
    firsts: dict[str, dict[int, int]] = defaultdict(dict)
    for row in rows:
        value, number = text(row.value[of]), row.value[name]
        values[number].add(value)
        firsts[value][number] = min(row.timestamp, firsts[value].get(number, row.timestamp))
    ranks = {
        value: sorted(numbers, key=lambda number: numbers[number])
        for value, numbers in firsts.items()
    }

    def named(row: Row) -> Row:
        value, number = text(row.value[of]), row.value[name]
        shown = (
            ranks[value].index(number)
            if len(values[number]) == 1
            else f"of {len(values[number])} values"
        )
        return replace(row, value={**row.value, name: shown})

    return tuple(named(row) for row in rows)


def _streams(promised: Promised, want: Outcome, got: Outcome, ordered: bool) -> Iterator[str]:
    for name in sorted(want.streams.keys() | got.streams.keys()):
        facts = promised.streams.get(name)
        if facts is None or facts.level is Level.NOTHING or facts.doubled:
            continue
        wanted, found = (_rows(each.streams.get(name, ()), facts) for each in (want, got))
        if facts.level is Level.STANDING:
            yield from _differ(
                f"what stands of {name}", _standing(wanted, facts), _standing(found, facts)
            )
            continue
        unequal = list(_differ(f"stream {name}", _count(wanted), _count(found)))
        yield from unequal
        if ordered and not unequal and facts.order is not Order.NONE:
            yield from _disorder(name, wanted, found)


def _tables(promised: Promised, want: Outcome, got: Outcome) -> Iterator[str]:
    for name in sorted(want.standing.keys() | got.standing.keys()):
        facts = promised.streams.get(name)
        # An upsert keeps the latest of each identity, which is determined where the order is.
        if (
            facts is None
            or facts.level is not Level.ALL
            or facts.order is Order.NONE
            or facts.doubled
        ):
            continue
        wanted, found = (_rows(each.standing.get(name, ()), facts) for each in (want, got))
        yield from _differ(f"current rows in the sink of {name}", _count(wanted), _count(found))


def _counters(spec: PipelineSpec, promised: Promised, want: Outcome, got: Outcome) -> Iterator[str]:
    exact, sources = _exact(spec, promised)
    # What is pushed becomes bounded when it ends, and then a partition may have another shard after
    # a crash.
    for name in sorted(exact if promised.crashing else exact | sources):
        wanted, found = want.counters.get(name, {}), got.counters.get(name, {})
        one, other = _counted(wanted), _counted(found)
        if one != other:
            yield f"counters of {name}: {one}, and {other}"


def _states(
    spec: PipelineSpec, promised: Promised, want: Outcome, got: Outcome, counted: bool
) -> Iterator[str]:
    exact, _ = _exact(spec, promised)
    remembering = {c.name for c in spec.computations if isinstance(c.work, SlicesSpec)}
    if counted:
        remembering |= {c.name for c in spec.computations if isinstance(c.work, CallbackSpec)}
    for name in sorted(exact & remembering):
        for what, wanted_of, found_of in (
            ("state", want.state, got.state),
            ("timers", want.timers, got.timers),
        ):
            wanted, found = wanted_of.get(name, {}), found_of.get(name, {})
            for key in sorted(wanted.keys() | found.keys(), key=repr):
                if wanted.get(key) != found.get(key):
                    yield (
                        f"{what} of {name} for key {key!r}: {wanted.get(key)}, and {found.get(key)}"
                    )


def _dead(spec: PipelineSpec, promised: Promised, want: Outcome, got: Outcome) -> Iterator[str]:
    exact, sources = _exact(spec, promised)
    # guarantees.md, The dial: dead letters are productions, and come twice where those do.
    shown = (exact | sources) - promised.doubled
    plain = {stream.name for stream in spec.streams if not stream.schema}
    direct = {c.name for c in spec.computations if all(given.stream in plain for given in c.inputs)}
    found = _filled(got.letters, want.letters, direct)
    yield from _differ("dead letters", _letters(want.letters, shown), _letters(found, shown))


def _filled(
    letters: tuple[Letter, ...], by: tuple[Letter, ...], direct: set[str]
) -> tuple[Letter, ...]:
    """Letters whose records are whole. dead-letters.md: one that was read into columns has only the
    fields that were read. ``direct``: computations whose records come from sources."""
    left = [each for each in by if isinstance(each.about, dict)]
    found = []
    for letter in letters:
        for whole in left if letter.where in direct and isinstance(letter.about, dict) else ():
            alike = (whole.where, whole.reason) == (letter.where, letter.reason)
            if alike and letter.about.items() <= whole.about.items():
                left.remove(whole)
                letter = whole
                break
        found.append(letter)
    return tuple(found)


def _exact(spec: PipelineSpec, promised: Promised) -> tuple[set[str], set[str]]:
    exact = {name for name, level in promised.computations.items() if level is Level.ALL}
    return exact, {f"source.{stream.name}" for stream in spec.streams}


def _counted(counters: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in counters.items() if name in _COUNTED and value}


def _letters(letters: tuple[Letter, ...], of: set[str]) -> Counter[str]:
    return Counter(
        _plain(f"{each.where}: {each.reason}: {text(_unordered(each.about))}")
        for each in letters
        if each.where in of
    )


def _unordered(about: Any) -> Any:
    """A window that failed has its records with it, which may be of streams that have no order
    between them."""
    if isinstance(about, dict) and isinstance(about.get("records"), list):
        return {**about, "records": sorted(map(text, about["records"]))}
    return about


def _plain(told: str) -> str:
    """What is told without what tells one run from another: lines, and the numbers of visitors."""
    return _VISITOR.sub("", re.sub(r"line \d+", "line", told))


def text(value: Any) -> str:
    """A value in one form."""
    return msgspec.json.encode(value, enc_hook=repr, order="deterministic").decode()


def _row(row: Row) -> str:
    return f"key {row.key!r} at {row.timestamp}: {text(row.value)}"


def _rows(rows: tuple[Row, ...], facts: Facts) -> tuple[Row, ...]:
    """The rows as far as their timestamps are determined."""
    return rows if facts.timed else tuple(replace(row, timestamp=0) for row in rows)


def _count(rows: tuple[Row, ...]) -> Counter[str]:
    return Counter(map(_row, rows))


def _standing(rows: tuple[Row, ...], facts: Facts) -> Counter[str]:
    """What was emitted once more than it was taken back; of windows that replace what they emitted,
    the last of each."""
    if not facts.retracts:
        last: dict[str, str] = {}
        for row in rows:
            last[
                text([repr(row.key), row.value.get("window_start"), row.value.get("window_end")])
            ] = _row(row)
        return Counter(last.values())
    found: Counter[str] = Counter()
    for row in rows:
        back = _TAKES_BACK in row.value
        value = {name: part for name, part in row.value.items() if name != _TAKES_BACK}
        found[_row(Row(row.key, row.timestamp, value))] += -1 if back else 1
    return Counter({line: count for line, count in found.items() if count})


def _differ(what: str, want: Counter[str], got: Counter[str]) -> Iterator[str]:
    if want == got:
        return
    missing, extra = want.copy(), got.copy()
    missing.subtract(got)
    extra.subtract(want)
    yield f"{what}: missing {_some(missing)}; too many {_some(extra)}"


def _some(lines: Counter[str]) -> str:
    found = [
        f"{count} x {line}" if count > 1 else line
        for line, count in sorted(lines.items())
        if count > 0
    ]
    rest = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"({'; '.join(found[:_SHOWN])}{rest})"


def _disorder(name: str, want: tuple[Row, ...], got: tuple[Row, ...]) -> Iterator[str]:
    one, other = _by_key(want), _by_key(got)
    for key in one:
        if one[key] != other.get(key):
            yield f"order of key {key} in {name}: {one[key]}, and {other.get(key)}"


def _by_key(rows: tuple[Row, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        found[repr(row.key)].append(_row(row))
    return found
