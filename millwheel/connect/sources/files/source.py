"""Files as a source: JSON lines, CSV, Parquet, Avro and web server logs, whole, or followed as they
grow.

A partition is a file, read by one reader; its name is its path below the folder that all globs
share. A followed source reads new lines as they are written and new files as they appear, and never
ends.
"""

from __future__ import annotations

import io
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, BinaryIO

import msgspec

from millwheel.adapters.spaces.object_store import ObjectStore
from millwheel.connect.formats.options import (
    FORMS,
    AvroOptions,
    CsvOptions,
    Format,
    Given,
    not_for_sources,
    read_format,
)
from millwheel.connect.options import Option, StoreConfig, one_of, read_options
from millwheel.connect.sources.base import Partition, Reader, Source
from millwheel.connect.sources.files.apache import ApacheCombined
from millwheel.connect.sources.files.csv_lines import CsvLines
from millwheel.connect.sources.files.inputs import PartitionInput, compression_of, open_input
from millwheel.connect.sources.files.json_lines import DeclaredJsonLines, JsonLines, WholeJsonLines
from millwheel.connect.sources.files.lines import FrameForm, LineFormat, LineReader
from millwheel.connect.sources.files.object_input import (
    CompressedObject,
    ObjectBytes,
    ObjectFile,
    ObjectInput,
)
from millwheel.connect.sources.files.objects import ObjectsSource, addresses
from millwheel.connect.sources.files.patterns import FilePattern, dealt, each_once, name_of, path_of
from millwheel.connect.sources.files.rotation import FollowedInput
from millwheel.connect.sources.folder_fields import with_folder_fields
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.errors import SetupError

log = logging.getLogger(__name__)

FORMATS = ("jsonl", "csv", "parquet", "avro", "apache_combined")
_WHOLE = ("parquet", "avro")  # formats whose files are written once

_AHEAD_BYTES = 1 << 20  # of an Avro object, in one request
_warned_of_compressed: set[str] = set()
"""Folders that were warned about: one warning for each."""


class FilesSourceOptions(msgspec.Struct, frozen=True):
    """Files, each read in order by one worker."""

    path: Annotated[
        str | list[str],
        Option(
            "input/*.jsonl",
            python="PathText | Sequence[PathText]",
            text=(
                "a file, a glob (`**` descends into folders), a folder, or a list of them;"
                " also of objects (`s3://…`, `gs://…`, `az://…`)"
            ),
        ),
    ]
    format: Annotated[
        Given,
        Option(
            "jsonl",
            FORMATS,
            forms=FORMS,
            text="how records are written; [formats](formats.md) with options",
        ),
    ]
    follow: Annotated[
        bool,
        Option("true", text="`true`: read on as files grow and new ones appear, and never end"),
    ] = False
    delimiter: Annotated[str, Option('";"', text="CSV: the character between fields")] = ","
    columns: Annotated[
        list[str],
        Option(
            "[id, time, amount]",
            text="CSV: names of the columns, for files without a header",
            default="the first line",
        ),
    ] = []
    max_line_bytes: Annotated[
        int, Option("1000000", text="longer lines go to the dead letters", default="1 MiB")
    ] = 1_048_576
    names: Annotated[
        str,
        Option(
            "rising",
            ("any", "rising"),
            text=(
                "`rising`: new [objects](objects.md) of a bucket have greater names than old"
                " ones, so a listing continues after the last one"
            ),
        ),
    ] = "any"
    config: StoreConfig = {}

    def __post_init__(self) -> None:
        form = self.form()
        self._check_paths()
        one_of("names", self.names, ("any", "rising"))
        if not (objects := addresses(self.globs())) and (self.config or self.names != "any"):
            name = "config" if self.config else "names"
            raise ValueError(
                f"option {name!r} is for object stores (s3://, gs://, az://); remove it"
            )
        if (
            self.follow
            and not objects
            and (packed := next(filter(compression_of, self.globs()), None))
        ):
            raise ValueError(
                f"option 'follow' does not fit {packed}: compressed files are written once;"
                " remove it"
            )
        if form.name in _WHOLE and self.follow and not objects:
            raise ValueError(
                f"option 'follow' does not fit format {form.name}: such files are written once;"
                " remove it"
            )
        if form.name != "csv" and (self.delimiter != "," or self.columns):
            raise ValueError(
                f"options 'delimiter' and 'columns' are for format: csv, not {form.name}; remove"
                " them"
            )
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ValueError(
                f"option 'delimiter' is {self.delimiter!r}; write one character, for example ';'"
            )
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("option 'columns' names a column twice; give each its own name")
        if not 64 <= self.max_line_bytes <= 1 << 28:
            raise ValueError(
                f"option 'max_line_bytes' is {self.max_line_bytes}; write a number from 64 to"
                f" {1 << 28}"
            )

    def _check_paths(self) -> None:
        if not self.path or "" in self.globs():
            raise ValueError(
                "option 'path' is empty; write a file name or a glob, for example input/*.jsonl"
            )

    def form(self) -> Format:
        """The format. Raises ValueError for an invalid one."""
        form = read_format(self.format, FORMATS)
        if isinstance(form.options, AvroOptions) and form.options.registry is not None:
            raise ValueError("option 'format': files have their schema within; remove 'registry'")
        return form

    def csv(self) -> CsvOptions:
        """The options of CSV, from ``format`` or from the options beside it."""
        inner = self.form().options
        if isinstance(inner, CsvOptions) and not isinstance(self.format, str):
            not_for_sources(inner)
            return inner
        return CsvOptions(self.columns, self.delimiter)

    def globs(self) -> list[str]:
        """The globs, as they were written."""
        return [self.path] if isinstance(self.path, str) else self.path


def build_files(
    options: Mapping[str, Any], folder: str, schema: type | None, fields: Mapping[str, str]
) -> FilesSource | ObjectsSource:
    """Build the source of local files or objects. Raises ValueError for invalid options."""
    FieldTypes(fields)
    read = read_options("the source 'files'", options, FilesSourceOptions)
    forms = FileForms(read, schema, fields, folder)
    if object_addresses := addresses(read.globs()):
        store = ObjectStore(object_addresses[0], read.config)
        keys = [each.key for each in object_addresses]
        return ObjectsSource(store, keys, read.follow, read.names == "rising", forms.object_reader)
    return FilesSource(read, folder, forms)


class FileForms:
    """Creates readers of files and objects, by the options."""

    def __init__(
        self,
        options: FilesSourceOptions,
        schema: type | None,
        fields: Mapping[str, str],
        folder: str = "",
    ) -> None:
        self._options = options
        self._format = options.form()
        self._avro_schema = _avro_schema(self._format, folder)
        self._schema = schema
        self._fields = dict(fields)

    def file_reader(self, path: str) -> Reader:
        """A reader of a file of this machine."""
        return with_folder_fields(self._file_reader(path), path, self._folder_fields())

    def object_reader(self, key: str, content: ObjectBytes) -> Reader:
        """A reader of one version of an object."""
        return with_folder_fields(self._object_reader(key, content), key, self._folder_fields())

    def _folder_fields(self) -> Mapping[str, str]:
        """The declared fields: objects of a schema have theirs from the file alone."""
        return self._fields if self._schema is None else {}

    def _file_reader(self, path: str) -> Reader:
        if self._format.name == "parquet":
            from millwheel.connect.sources.arrow.parquet import ParquetReader

            return ParquetReader(path, self._schema, self._fields)
        if self._format.name == "avro":
            return self._avro_reader(path)
        followed = FollowedInput(path) if self._options.follow else None
        return self._line_reader(path, open_input(path) if followed is None else followed, followed)

    def _object_reader(self, key: str, content: ObjectBytes) -> Reader:
        if self._format.name == "parquet":
            from millwheel.connect.sources.arrow.parquet import ParquetReader

            return ParquetReader(key, self._schema, self._fields, ObjectFile(content))
        if self._format.name == "avro":
            return self._avro_reader(key, io.BufferedReader(ObjectFile(content), _AHEAD_BYTES))
        compression = compression_of(key)
        opened = (
            CompressedObject(key, compression, content)
            if compression
            else ObjectInput(key, content)
        )
        return self._line_reader(key, opened, None)

    def _avro_reader(self, path: str, file: BinaryIO | None = None) -> Reader:
        from millwheel.connect.formats.avro.files import AvroReader

        decimals = (
            self._format.options.decimals
            if isinstance(self._format.options, AvroOptions)
            else "float"
        )
        return AvroReader(path, self._avro_schema, decimals, self._schema, self._fields, file)

    def _line_reader(
        self, name: str, opened: PartitionInput, followed: FollowedInput | None
    ) -> Reader:
        undeclared = self._format.name == "jsonl" and not self._fields and self._schema is None
        guess = _guessed_form if undeclared else None
        form, frames = self._line_format(name), self._frame_form(name)
        whole = self._whole_form if frames is not None and self._format.name == "jsonl" else None
        return LineReader(
            opened, form, self._options.max_line_bytes, followed, frames, guess, whole
        )

    def _line_format(self, name: str) -> LineFormat:
        if self._format.name == "jsonl":
            return JsonLines(self._schema, FieldTypes(self._fields))
        if self._format.name == "apache_combined":
            return ApacheCombined(self._schema, FieldTypes(self._fields))
        csv = self._options.csv()
        return CsvLines(
            self._schema,
            self._fields,
            csv.delimiter,
            csv.columns,
            self._options.max_line_bytes,
            name,
        )

    def _frame_form(self, name: str) -> FrameForm | None:
        if not self._fields or self._schema is not None:
            return None
        if self._format.name != "jsonl":
            return FrameForm(self._line_format(name), self._fields)
        from millwheel.core.columns.declared_fields import row_type

        return FrameForm(JsonLines(row_type(self._fields), FieldTypes({})), self._fields)

    def _whole_form(self, fields: Mapping[str, str]) -> FrameForm:
        from millwheel.core.columns.declared_fields import row_type

        guessed, fields = fields.keys() - self._fields.keys(), {**fields, **self._fields}
        form = DeclaredJsonLines(row_type(fields, guessed, whole=True), FieldTypes({}))
        return FrameForm(form, fields, guessed, whole=True)


def _guessed_form(fields: Mapping[str, str]) -> FrameForm:
    from millwheel.core.columns.declared_fields import row_type

    return FrameForm(WholeJsonLines(row_type(fields, fields), FieldTypes({})), fields, fields)


def _avro_schema(form: Format, folder: str) -> Any:
    """The schema to which records of Avro files are resolved, None for their own."""
    if not isinstance(form.options, AvroOptions):
        return None
    from millwheel.connect.formats.avro.schema import fastavro, load_schema, parse

    fastavro()
    if form.options.schema is None:
        return None
    schema = load_schema(form.options.schema, folder)
    parse(schema)
    return schema


class FilesSource(Source):
    """All files that match, each once, even if several globs match it."""

    poll_us = 20_000

    def __init__(self, options: FilesSourceOptions, folder: str, forms: FileForms) -> None:
        self._options = options
        self._forms = forms
        self._patterns = [FilePattern(folder, path) for path in options.globs()]
        self._top = os.path.commonpath([pattern.fixed_folder for pattern in self._patterns])
        self.bounded = not options.follow
        self.absent = f"no file matches {' or '.join(map(str, self._patterns))} yet"

    def partitions(self) -> Sequence[Partition]:
        """One per file. For a bounded source their order makes halves, quarters and so on about
        equally large, because shards read neighbouring partitions. Raises SetupError when there is
        no file and none can appear."""
        paths = each_once({path for pattern in self._patterns for path in pattern.matches()})
        if not self.bounded:
            return self._followed(paths)
        paths = set(filter(os.path.isfile, paths))
        if not paths:
            patterns = " or ".join(map(str, self._patterns))
            raise SetupError(
                f"no file matches {patterns}; check the path of the source (** descends into"
                " folders), or write follow: true to wait for files"
            )
        named = {name_of(path, self._top): path for path in paths}
        return [
            Partition(name)
            for name in dealt({name: os.path.getsize(named[name]) for name in sorted(named)})
        ]

    def _followed(self, paths: set[str]) -> list[Partition]:
        """The present files, without those that rotation has compressed."""
        partitions = []
        for path in sorted(paths):
            if compression_of(path):
                self._warn_of_compressed(path)
                continue
            try:
                status = os.stat(path)
            except OSError:  # it was deleted while the folder was listed
                continue
            if stat.S_ISREG(status.st_mode):
                version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
                partitions.append(
                    Partition(name_of(path, self._top), version, status.st_mtime_ns // 1000)
                )
        return partitions

    def _warn_of_compressed(self, path: str) -> None:
        if self._top not in _warned_of_compressed:
            _warned_of_compressed.add(self._top)
            log.warning(
                "%s is compressed, and compressed files are not followed: it and others like it are"
                " ignored. Narrow the glob to exclude them",
                path,
            )

    def warm_up(self) -> None:
        """Load the code that the first read needs."""
        if self._options.form().name == "parquet":
            from millwheel.connect.sources.arrow.parquet import warm_up

            warm_up()

    def paths(self) -> list[str]:
        """The present files."""
        return [path_of(partition.name, self._top) for partition in self.partitions()]

    def fits(self, name: str) -> bool:
        """See :class:`millwheel.connect.sources.base.Source`."""
        path = path_of(name, self._top)
        return any(pattern.fits(path) for pattern in self._patterns)

    def open(self, partition: Partition) -> Reader:
        path = path_of(partition.name, self._top)
        if os.path.commonpath((self._top, path)) != self._top:
            raise SetupError(
                f"{partition.name!r} lies outside {self._top}, where all files of the source are"
            )
        return self._forms.file_reader(path)
