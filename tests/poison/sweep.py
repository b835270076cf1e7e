"""One place and some poison: the runs, and the rule that they are judged by.

The rule: the run goes on to its end. A poison record is used, or late, or it is exactly one dead
letter that has it and a reason. All rows of other keys are those of a run without poison. Crashes,
bundles and columns change none of this.
"""

from __future__ import annotations

import csv
import enum
import io
import json
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millwheel import Record, as_retraction
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.tools.testing import PipelineHarness, pipeline_harness
from tests.poison.catalogue import EXCEPTIONS, OBJECTS, TEXTS
from tests.poison.outputs import real_sinks, rows_of
from tests.poison.places import Place
from tests.sim.replacing import replaced

START = 1_767_258_000_000_000
_KEYS = ("g0", "g1", "g2")
_USUAL = 12
_UNITS = 75
"""Between crashes where sinks are real: fewer are over before a file is a second old and shows."""
_SINK = "{stdout: {}}"
_CHANGES = "{stdout: {mode: changelog}}"
_SECOND = "\n  second:\n   on_error: dead_letter"
_LEFT_OUT = ("late", "filtered", "unmatched", "duplicates", "deduplicated")
_MARKS = re.compile(r"""[\\'"]|(?<=:) """)
_ADDRESS = re.compile(r"0x[0-9a-f]+")
DOCUMENT = """pipeline: poison
streams:
  events:
    source: {{files: {{path: in.{form}, format: {form}}}}}
    watermark: {{max_delay: 1d}}
    on_error: dead_letter
    {stream}
{others}computations:
  place:
   on_error: dead_letter
   {computation}
sinks:
  results: {sink}
"""
_OTHERS = """  {name}:
    source: {{files: {{path: others.jsonl, format: jsonl}}}}
    timestamp: t
"""


class Way(enum.Enum):
    """How a place is run; all give the same."""

    PLAIN = "plain"
    CRASHES = "a crash every so many units"
    ROWS = "rows only"


@dataclass(frozen=True, slots=True)
class Found:
    """What a run gave: rows and letters as text that tells types apart, and how many records were
    late or left out."""

    rows: tuple[str, ...]
    letters: tuple[Mapping[str, Any], ...]
    left_out: int


def poisons(place: Place) -> dict[str, str]:
    """The poison of a place by name, as JSON of the poisoned field."""
    if place.slot == "object":
        return {name: json.dumps(name) for name in OBJECTS}
    if place.slot == "raises":
        return {name: json.dumps(name) for name in EXCEPTIONS}
    return {name: text for group in TEXTS.values() for name, text in group.items()}


def lines(place: Place, poison: Mapping[str, str]) -> list[str]:
    """The records of a run as JSON: usual ones, with poison among them."""
    found = [
        _line(place, number, None, place.usual[number % len(place.usual)])
        for number in range(_USUAL)
    ]
    every = max(1, len(poison) // _USUAL + 1)
    for number, (name, text) in enumerate(poison.items()):
        found.insert(2 + number * (every + 1) // every, _line(place, number, name, text))
    return found


def _line(place: Place, number: int, name: str | None, text: str) -> str:
    fields = {} if name is None else {"p": json.dumps(name)}
    fields |= {
        "k": json.dumps(_KEYS[number % 3] if name is None else f"p {name}"),
        "t": str(START + number * 1_000_000),
        "n": str(number + 1),
        "id": json.dumps(f"{name} {number}"),
        "v": "2",
    }
    if place.slot == "t" or " in s" in place.name or " in ms" in place.name:
        fields["t"] = place.usual[number % len(place.usual)]
    if place.slot not in {"object", "raises"} or name is not None:
        fields[place.slot] = text
    return "{" + ", ".join(f'"{field}": {value}' for field, value in fields.items()) + "}"


def _as_csv(records: Sequence[str]) -> str:
    out = io.StringIO(newline="")
    written = csv.writer(out)
    written.writerow(["k", "t", "n", "id", "v", "p"])
    for record in records:
        try:
            value = json.loads(record)
        except (ValueError, RecursionError):
            continue
        cells = [value.get(field) for field in ("k", "t", "n", "id", "v", "p")]
        written.writerow(
            [json.dumps(cell) if isinstance(cell, (list, dict, bool)) else cell for cell in cells]
        )
    return out.getvalue()


class _RowsOnly(Assembly):
    """No columns behind a source."""

    def _column_plan(self, computation: Any) -> Any:
        return None

    def _joined_by_bundle(self, spec: Any) -> Any:
        return None


@contextmanager
def _signals_as_in_a_worker() -> Iterator[None]:
    """A worker handles SIGINT itself, so a KeyboardInterrupt comes from the code of a user."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _columns(wanted: bool) -> Iterator[None]:
    with ExitStack() as stack:
        if not wanted:
            stack.enter_context(replaced(pipeline_harness, "Assembly", _RowsOnly))
        yield


def run(place: Place, poison: Mapping[str, str], folder: Path, way: Way = Way.PLAIN) -> Found:
    """A run over the usual records and some poison."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    records = lines(place, poison)
    text = _as_csv(records) if place.format == "csv" else "\n".join(records) + "\n"
    (folder / f"in.{place.format}").write_text(
        text, encoding="utf-8", errors="surrogatepass", newline=""
    )
    (folder / "others.jsonl").write_text(json.dumps({"k": "g0", "t": START, "o": 1}) + "\n")
    stream = place.stream if "timestamp:" in place.stream else f"timestamp: t\n    {place.stream}"
    others = "".join(
        _OTHERS.format(name=name) for name in ("others", "thirds") if name in place.computation
    )
    computation = place.computation.replace("\n ", "\n   ").replace("\nsecond:", _SECOND)
    document = DOCUMENT.format(
        form=place.format,
        stream=stream,
        others=others,
        computation=computation,
        sink=place.sink or (_CHANGES if place.changes else _SINK),
    )
    path = folder / "poison.yaml"
    path.write_text(document)
    crashes = (_UNITS if place.sink else 25) if way is Way.CRASHES else None
    with (
        _signals_as_in_a_worker(),
        _columns(way is not Way.ROWS),
        real_sinks(place.sink),
        PipelineHarness(path, run_sources=True, now=START, crash_every=crashes) as harness,
    ):
        harness.advance_processing_time(START + 10_000_000)  # sinks write after a second
        rows = (
            rows_of(folder / "out", "fields:" in place.sink)
            if place.sink
            else _results(harness.records("results"))
        )
        letters = tuple(record.value for record in harness.records(DEAD_LETTERS))
        counted = harness.counters
        return Found(rows, letters, sum(counted.get(name, 0) for name in _LEFT_OUT))


def _results(records: Sequence[Record]) -> tuple[str, ...]:
    """What stands of them, with what was taken back without being there as rows of their own."""
    standing: Counter[str] = Counter()
    for record in records:
        back = as_retraction(record.value)
        standing[_told(record.value if back is None else back.value)] += 1 if back is None else -1
    below = {f"taken back too often: {row}": -count for row, count in standing.items() if count < 0}
    return tuple((standing + Counter(below)).elements())


def _told(value: Any) -> str:
    try:
        return _ADDRESS.sub("0x", json.dumps(value, default=repr, sort_keys=True))
    except (TypeError, ValueError):
        return _ADDRESS.sub("0x", repr(value))


def _usual(rows: Sequence[str]) -> Counter[str]:
    return Counter(row for row in rows if any(f'"{key}"' in row for key in _KEYS))


def _said(letter: Mapping[str, Any], way: Way = Way.PLAIN) -> str:
    # A letter from columns has the fields that were read.
    names = (
        ("computation", "reason", "key")
        if way is Way.ROWS
        else ("computation", "reason", "key", "value")
    )
    parts = {name: letter.get(name) for name in names}
    return _ADDRESS.sub("0x", json.dumps(parts, default=repr, sort_keys=True))


def wrong(place: Place, poison: Mapping[str, str], folder: Path) -> list[str]:
    """What breaks the rule, in words."""
    what = f"{place.name} with {', '.join(poison) if len(poison) < 4 else f'{len(poison)} values'}"
    try:
        clean, whole = run(place, {}, folder), run(place, poison, folder)
    except BaseException as ex:
        return [f"{what}: {type(ex).__name__}: {_short(ex)}"]
    found = [f"{place.name}: without poison: {letter['reason']}" for letter in clean.letters[:1]]
    if _usual(whole.rows) != _usual(clean.rows):
        found.append(f"{what}: other rows {_difference(_usual(clean.rows), _usual(whole.rows))}")
    found += [f"{place.name}: {each}" for each in _letters_wrong(place, poison, whole)]
    for way in (Way.CRASHES, Way.ROWS) if place.columns else (Way.CRASHES,):
        found += [
            f"{what}, {way.value}: {each}" for each in _differs(place, poison, folder, way, whole)
        ]
    return found


def _differs(
    place: Place, poison: Mapping[str, str], folder: Path, way: Way, whole: Found
) -> Iterator[str]:
    try:
        other = run(place, poison, folder, way)
    except BaseException as ex:
        yield f"{type(ex).__name__}: {_short(ex)}"
        return
    ours, theirs = Counter(whole.rows), Counter(other.rows)
    if ours != theirs:
        yield f"rows {_difference(ours, theirs)}"
    ours, theirs = (Counter(_said(each, way) for each in found.letters) for found in (whole, other))
    if ours != theirs:
        yield f"letters {_difference(ours, theirs)}"


def _letters_wrong(place: Place, poison: Mapping[str, str], whole: Found) -> Iterator[str]:
    told: Counter[str] = Counter()
    for letter in whole.letters:
        text = f"{json.dumps(letter.get('value'), default=repr)}, p {letter.get('key')} key"
        named = [name for name in poison if names_it(text, name)]
        if not named and len(poison) == 1:
            named = list(poison) if place.slot in {"k", "object"} or place.format == "csv" else []
        if not letter["reason"] and not letter.get("exception"):
            yield f"a letter without a reason: {letter}"
        if not named and "results" not in letter["computation"]:
            yield f"a letter of no poison: {_short(letter)}"
        told.update(named[:1] if len(named) != 1 else named)
    missing = [
        name
        for name in poison
        if not told[name] and not any(names_it(row, name) for row in whole.rows)
    ]
    if place.slot in {"v", "t", "id", "a0"} and not place.drops and len(missing) > whole.left_out:
        yield f"neither used nor a letter: {missing}"
    for name in poison:
        if told[name] > 1 and len(poison) == 1:
            yield (
                f"{name} is {told[name]} letters:"
                f" {[_short(each['reason']) for each in whole.letters]}"
            )


def names_it(text: str, name: str) -> bool:
    """Whether a letter's key or value, as JSON, as Python prints it or as a line, has the mark of a
    poison."""
    plain, plain_name = (
        _MARKS.sub("", each) for each in (json.dumps(text), json.dumps(json.dumps(name)))
    )
    return any(
        f"{mark}{plain_name}{end}" in plain
        for mark in ("p ", "p:", ",")
        for end in (",", "}", "]", " key")
    )


def _difference(ours: Counter[str], theirs: Counter[str]) -> str:
    return (
        f"- {[_short(each) for each in (ours - theirs)][:3]} +"
        f" {[_short(each) for each in (theirs - ours)][:3]}"
    )


def _short(value: Any) -> str:
    try:
        return str(value)[:300].replace("\n", " ")
    except Exception:
        return f"<{type(value).__name__} without text>"
