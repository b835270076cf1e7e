"""Files as a source: each file that a glob matches is a partition, read by one reader."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from millwheel.errors import SetupError
from millwheel.options import one_of, read_options
from millwheel.sources.apache import ApacheCombined
from millwheel.sources.base import Partition, Reader
from millwheel.sources.csv_lines import CsvLines
from millwheel.sources.fields import FieldTypes
from millwheel.sources.inputs import compression_of, open_input
from millwheel.sources.json_lines import JsonLines
from millwheel.sources.lines import LineFormat, LineReader

FORMATS = ("jsonl", "csv", "parquet", "apache_combined")
_EXAMPLES = {
    "path": "path: input/*.jsonl",
    "format": "format: jsonl",
    "follow": "follow: true",
    "delimiter": 'delimiter: ";"',
    "columns": "columns: [id, time, amount]",
    "max_line_bytes": "max_line_bytes: 1000000",
}


class FilesOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may stand below ``files:``. ``path`` is a glob or several; ``**`` descends into folders."""

    path: str | list[str]
    format: str
    follow: bool = False
    delimiter: str = ","
    columns: list[str] = []
    max_line_bytes: int = 1_048_576

    def __post_init__(self) -> None:
        one_of("format", self.format, FORMATS)
        if not self.path or "" in self.globs():
            raise ValueError("option 'path' is empty; write a file name or a glob, for example input/*.jsonl")
        if self.format == "parquet" and self.follow:
            raise ValueError("option 'follow' does not fit format parquet, whose files are written once; remove it")
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ValueError(f"option 'delimiter' is {self.delimiter!r}; write one character, for example ';'")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("option 'columns' names a column twice; give each its own name")
        if not 64 <= self.max_line_bytes <= 1 << 28:
            raise ValueError(f"option 'max_line_bytes' is {self.max_line_bytes}; write a number from 64 to {1 << 28}")

    def globs(self) -> list[str]:
        """The globs, as they were written."""
        return [self.path] if isinstance(self.path, str) else self.path


def build_files(options: Mapping[str, Any], folder: str, schema: type | None, fields: Mapping[str, str]) -> FilesSource:
    """Raises ValueError, with a sentence, for options that cannot work."""
    FieldTypes(fields)
    return FilesSource(read_options("the source 'files'", options, FilesOptions, _EXAMPLES), folder, schema, fields)


class FilesSource:
    """All files that match. A followed source also finds files that appear later, and never ends."""

    poll_us = 50_000
    """How long to wait after a read that found nothing, µs."""

    def __init__(self, options: FilesOptions, folder: str, schema: type | None, fields: Mapping[str, str]) -> None:
        self._options = options
        self._globs = [os.path.normpath(os.path.join(folder, pattern)) for pattern in options.globs()]
        self._schema = schema
        self._fields = dict(fields)
        self.bounded = not options.follow

    def partitions(self) -> Sequence[Partition]:
        """One per file, sorted by name. Raises SetupError when there is none and none will come."""
        found = sorted(_files(self._globs))
        if not found and self.bounded:
            raise SetupError(f"no file matches {' or '.join(self._globs)}; check the path of the source, or write follow: true")
        self._refuse_compressed(found)
        return [Partition(self._name(path)) for path in found]

    def open(self, partition: Partition) -> Reader:
        path = self._path(partition.name)
        if self._options.format == "parquet":
            from millwheel.sources.parquet import ParquetReader

            return ParquetReader(path, self._schema, self._fields)
        options = self._options
        return LineReader(open_input(path, options.follow), self._line_format(), options.max_line_bytes, options.follow)

    def _line_format(self) -> LineFormat:
        options = self._options
        if options.format == "jsonl":
            return JsonLines(self._schema, FieldTypes(self._fields))
        if options.format == "apache_combined":
            return ApacheCombined(self._schema, FieldTypes(self._fields))
        return CsvLines(self._schema, self._fields, options.delimiter, options.columns, options.max_line_bytes)

    def _refuse_compressed(self, paths: list[str]) -> None:
        compressed = next(filter(compression_of, paths), None)
        if self._options.follow and compressed is not None:
            raise SetupError(f"{compressed} is compressed and cannot be followed; narrow the glob, or remove follow: true")

    # --- names -------------------------------------------------------------------------------------------

    def _roots(self) -> list[str]:
        return [fixed_prefix(pattern) for pattern in self._globs]

    def _name(self, path: str) -> str:
        """The path below the glob's fixed folder; with globs in several folders, the number of the folder before it."""
        roots = sorted(set(self._roots()))
        if len(roots) == 1:
            return os.path.relpath(path, roots[0])
        inside = [root for root in roots if os.path.commonpath((root, path)) == root]
        root = max(inside, key=len)
        return f"{roots.index(root)}:{os.path.relpath(path, root)}"

    def _path(self, name: str) -> str:
        roots = sorted(set(self._roots()))
        if len(roots) == 1:
            root, below = roots[0], name
        else:
            number, _, below = name.partition(":")
            if not number.isdecimal() or int(number) >= len(roots):
                raise SetupError(f"{name!r} is no file of the source {', '.join(self._globs)}; use a new root")
            root = roots[int(number)]
        path = os.path.normpath(os.path.join(root, below))
        if os.path.commonpath((root, path)) != root:
            raise SetupError(f"the partition {name!r} lies outside {root}; use a new root")
        return path


def fixed_prefix(pattern: str) -> str:
    """The folder of a normalised glob in which all it can match lies."""
    if not glob.has_magic(pattern):
        return os.path.dirname(pattern)
    parts = pattern.split(os.sep)
    fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return os.sep.join(parts[:fixed]) or os.sep


def _files(globs: Sequence[str]) -> set[str]:
    """Visible files, each once, whichever globs match them."""
    return {path for pattern in globs for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)}
