"""Real sinks in the harness, and their rows as other programs read them back."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet

from millwheel.connect.kinds import build_sink
from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from millwheel.tools.testing import pipeline_harness, taps
from millwheel.tools.testing.rewiring import rewired
from tests.sim.replacing import replaced


class _Taps(taps.Taps):
    """Taps but for streams whose sink is to be real."""

    def build(self, spec: SinkSpec, folder: str) -> Any:
        if spec.kind == taps.KIND:
            return super().build(spec, folder)
        made = build_sink(spec, folder, "poison")
        made.check("poison")  # as the driver does before the workers start
        return made


@contextmanager
def real_sinks(wanted: object) -> Iterator[None]:
    """The pipeline's own sinks in place of taps, but for the dead letters."""
    with ExitStack() as stack:
        if wanted:
            stack.enter_context(replaced(pipeline_harness, "rewired", _kept))
            stack.enter_context(replaced(pipeline_harness, "Taps", _Taps))
        yield


def _kept(spec: PipelineSpec, **options: Any) -> PipelineSpec:
    own = {sink.stream: sink for sink in spec.sinks}
    wired = rewired(spec, **options)
    return replace(wired, sinks=tuple(own.get(sink.stream, sink) for sink in wired.sinks))


def rows_of(folder: Path, typed: bool) -> tuple[str, ...]:
    """The rows of a folder of results, as text. ``typed``: their fields are declared."""
    files = (
        path
        for path in folder.rglob("*")
        if path.is_file() and not _hidden(path.relative_to(folder))
    )
    return tuple(
        json.dumps(row, default=repr, sort_keys=True)
        for path in sorted(files)
        for row in _rows(path, typed)
    )


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _untyped(value: Any) -> str:
    """A value without the type of its column, which follows from the other values in its file:
    undeclared whole numbers become floats beside one, and texts beside anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, default=repr)


def _rows(path: Path, typed: bool) -> Iterator[Any]:
    if path.suffix == ".parquet":
        for row in pyarrow.parquet.read_table(path).to_pylist():
            yield row if typed else {name: _untyped(value) for name, value in row.items()}
    elif path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)
    else:
        yield from (
            json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line
        )
