"""How many records the bounded input of a run has, counted or estimated, so that its progress has
an end."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millwheel.connect.sources.files.source import FilesSource, build_files
from millwheel.core.pipeline.spec import PipelineSpec, SourceSpec
from millwheel.errors import MillwheelError

_LOOK_BYTES = 1 << 16  # of a file, from which the length of its lines is estimated
_LOOK_FILES = 8  # files that are looked into
# of reading before files are looked into: a start opens no input, and a short run needs no estimate
_WAIT_S = 3.0
_LINES = ("jsonl", "csv", "apache_combined", "text")
_PACKED = (".gz", ".zst", ".bz2", ".xz")


@dataclass(frozen=True, slots=True)
class Expected:
    """``exact`` unless it is an estimate from sizes of files."""

    records: int
    exact: bool


class Estimate:
    """The expected records of a run, looked up once, when its sources have been reading for some
    seconds."""

    def __init__(self, spec: PipelineSpec) -> None:
        self._spec = spec
        self._reading_since_s: float | None = None
        self._expected: Expected | None = None
        self._looked = False

    def after(self, records: int, now_s: float) -> Expected | None:
        """The expected number of records after ``records`` have been read."""
        if records and self._reading_since_s is None:
            self._reading_since_s = now_s
        if (
            not self._looked
            and self._reading_since_s is not None
            and now_s >= self._reading_since_s + _WAIT_S
        ):
            self._looked, self._expected = True, expected_records(self._spec)
        return self._expected


def expected_records(spec: PipelineSpec) -> Expected | None:
    """The number of records of all sources; None if a source is unbounded or the number is
    unknown."""
    sizes = [
        _of_source(stream.source, spec.folder)
        for stream in spec.streams
        if stream.source is not None
    ]
    present = [each for each in sizes if each is not None]
    if not present or len(present) < len(sizes):
        return None
    return Expected(sum(each.records for each in present), all(each.exact for each in present))


def _of_source(source: SourceSpec, folder: str) -> Expected | None:
    options = source.options
    if source.kind == "generator":
        count = options.get("count")
        return None if count is None else Expected(int(count), True)
    if (
        source.kind != "files"
        or options.get("follow")
        or options.get("format") not in (*_LINES, "parquet")
    ):
        return None
    try:
        built = build_files(options, folder, None, {})
        if not isinstance(built, FilesSource):
            return None  # an object store would be asked about each object
        paths = list(map(Path, built.paths()))
        return _of_parquet(paths) if options["format"] == "parquet" else _of_lines(paths, options)
    except (MillwheelError, OSError, ValueError):
        return None  # the run itself reports the error


def _of_parquet(paths: Sequence[Path]) -> Expected:
    import pyarrow.parquet as pq

    sizes = {path: path.stat().st_size for path in paths}
    looked = sorted(paths, key=lambda path: -sizes[path])[:_LOOK_FILES]
    rows, size = (
        sum(pq.read_metadata(path).num_rows for path in looked),
        sum(sizes[path] for path in looked),
    )
    if len(looked) == len(paths) or not size:
        return Expected(rows, True)
    return Expected(round(rows * sum(sizes.values()) / size), False)


def _of_lines(paths: Sequence[Path], options: Mapping[str, Any]) -> Expected | None:
    if any(path.suffix in _PACKED for path in paths):
        return None
    read, lines = 0, 0
    for path in sorted(paths, key=lambda each: -each.stat().st_size)[:_LOOK_FILES]:
        with open(path, "rb") as file:
            data = file.read(_LOOK_BYTES)
        whole = data if len(data) < _LOOK_BYTES else data[: data.rfind(b"\n") + 1]
        if data and not whole:
            return None  # a line is longer than the sample
        read, lines = (
            read + len(whole),
            lines + whole.count(b"\n") + (not whole.endswith(b"\n") and bool(whole)),
        )
    size = sum(os.stat(path).st_size for path in paths)
    heads = len(paths) if options.get("format") == "csv" and not options.get("columns") else 0
    if not read:
        return Expected(0, True)
    return Expected(max(0, round(size * lines / read) - heads), size == read)
