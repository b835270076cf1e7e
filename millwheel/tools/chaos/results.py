"""The contents of a run's file sinks, record by record, and how two runs differ.

A sink of changes is compared by its last versions: the number of versions before is chance.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from millwheel.connect.python_objects import load_object
from millwheel.connect.sinks.result_rows import Mode
from millwheel.core.lazy_polars import pl
from millwheel.core.order.arrival import VERSIONS, by_arrival, reasons_of
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from millwheel.errors import SetupError
from millwheel.language.spec.callback_code import LoadedCode

_MARK = "change"  # as in the options of the sink
_SHOWN = 3  # rows of a difference that are shown


@dataclass(frozen=True, slots=True)
class Difference:
    """One sink of the two runs: rows without faults, and rows missing and extra under faults."""

    stream: str
    rows: int
    missing: Counter[str]
    extra: Counter[str]

    @property
    def lost(self) -> int:
        """Rows of the undisturbed run that the other does not have."""
        return sum(self.missing.values())

    @property
    def surplus(self) -> int:
        """Rows that the undisturbed run does not have, or has less often."""
        return sum(self.extra.values())

    def examples(self) -> list[str]:
        """A few of them, in words."""
        lines = [f"missing: {row}" for row in list(self.missing)[:_SHOWN]]
        return lines + [f"extra: {row}" for row in list(self.extra)[:_SHOWN]]


def compared(calm: PipelineSpec, disturbed: PipelineSpec) -> list[Difference]:
    """The file sinks of the same pipeline after two runs. SetupError when there is nothing that
    could be compared, or both runs write to the same folder."""
    pairs = [
        (calm_sink, other)
        for calm_sink, other in zip(calm.sinks, disturbed.sinks, strict=True)
        if _in_folder(calm_sink)
    ]
    if not pairs:
        raise SetupError(
            f"{calm.name} has no sink of kind `files`, so there are no results to compare; add one"
        )
    for one, other in pairs:
        if _folder(one, calm) == _folder(other, disturbed):
            raise SetupError(
                f"{one.where}: the sink of {one.stream} is {_folder(one, calm)} in both runs."
                " Put {run} into its path, for example --set output=out/{run}: it becomes calm"
                " and chaos"
            )
    return [
        _difference(first.stream, rows_of(first, calm), rows_of(other, disturbed))
        for first, other in pairs
    ]


def free_sinks(spec: PipelineSpec) -> dict[str, tuple[str, ...]]:
    """For each sink, by stream: where the order of arrival may decide its rows, and why."""
    graph = build_graph(spec)
    reasons = by_arrival(graph, LoadedCode(lambda name: load_object(name, spec.folder)))
    standing = {name: why for name, why in reasons.items() if why != VERSIONS}
    return {
        sink.stream: reasons_of(
            f"sink.{sink.stream}", graph, reasons if _mode(sink) is Mode.APPEND else standing
        )
        for sink in spec.sinks
    }


def _difference(stream: str, calm: Counter[str], disturbed: Counter[str]) -> Difference:
    return Difference(stream, sum(calm.values()), calm - disturbed, disturbed - calm)


def result_folders(spec: PipelineSpec) -> list[Path]:
    """Where the file sinks write."""
    return [_folder(sink, spec) for sink in spec.sinks if _in_folder(sink)]


def rows_of(sink: SinkSpec, spec: PipelineSpec) -> Counter[str]:
    """Each row as text, and how often it is there; of changes, the rows that stand."""
    form = str(sink.options.get("format", "jsonl"))
    paths = sorted(_folder(sink, spec).glob(f"**/*.{form}"))
    rows = (row for path in paths for row in _rows(path, form))
    if _mode(sink) is not Mode.CHANGELOG:
        return Counter(map(_text, rows))
    mark = str(sink.options.get("mark", _MARK))
    # a row is retracted at the time of its replacement
    return _standing(rows, mark, {mark, *(["timestamp"] if sink.options.get("timestamp") else [])})


def _standing(rows: Iterable[Any], mark: str, aside: Set[str]) -> Counter[str]:
    balance: Counter[str] = Counter()
    for row in rows:
        plain = {name: value for name, value in row.items() if name not in aside}
        balance[_text(plain)] += 1 if row[mark] == "+" else -1
    return Counter(
        {
            row if count > 0 else f"taken back, and not there: {row}": abs(count)
            for row, count in balance.items()
            if count
        }
    )


def _rows(path: Path, form: str) -> Iterable[Any]:
    if form == "jsonl":
        return map(msgspec.json.decode, path.read_bytes().splitlines())
    if form == "parquet":
        return pl.read_parquet(path).to_dicts()
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _mode(sink: SinkSpec) -> Mode:
    return Mode(sink.options.get("mode", Mode.APPEND))


def _text(row: Any) -> str:
    return msgspec.json.encode(row, order="deterministic", enc_hook=str).decode()


def _in_folder(sink: SinkSpec) -> bool:
    """A sink whose results lie in files of this machine."""
    return sink.kind == "files" and "://" not in str(sink.options["path"])


def _folder(sink: SinkSpec, spec: PipelineSpec) -> Path:
    return (Path(spec.folder) / str(sink.options["path"])).resolve()
