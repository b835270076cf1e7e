"""The options of the files sink, and how its records become rows and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from millwheel.adapters.spaces.object_address import address_of
from millwheel.connect.built_in import other_system
from millwheel.connect.formats.options import (
    FORMS,
    AvroOptions,
    CsvOptions,
    Format,
    Given,
    read_format,
)
from millwheel.connect.options import Mark, Option, StoreConfig, WithKey, WithTimestamp
from millwheel.connect.sinks.base import flush_us
from millwheel.connect.sinks.files.content import Shape
from millwheel.connect.sinks.files.open_files import RollOptions
from millwheel.connect.sinks.files.paths import Partitioning
from millwheel.connect.sinks.result_rows import MODES, Mode

_FORMATS = ("jsonl", "csv", "parquet", "avro")


class FilesSinkOptions(msgspec.Struct, frozen=True):
    """Part files in a folder: whole, committed and final. They contain each record exactly once."""

    path: Annotated[
        str,
        Option(
            "results/alerts",
            python="PathText",
            text="the folder, also of an object store (`s3://…`, `gs://…`, `az://…`)",
        ),
    ]
    format: Annotated[
        Given,
        Option(
            "jsonl",
            _FORMATS,
            forms=FORMS,
            text=(
                "how rows are written; [formats](formats.md) with options, such as `{avro:"
                " {schema: row.avsc}}`"
            ),
        ),
    ] = "jsonl"
    with_key: WithKey = False
    with_timestamp: WithTimestamp = False
    flush: Annotated[
        str | int,
        Option(
            "1s",
            python="Duration",
            text="a file is written once its first record has waited this long …",
        ),
    ] = "1s"
    cut_records: Annotated[int, Option("50000", text="… or once there are this many")] = 50_000
    fields: Annotated[
        dict[str, str],
        Option(
            "{ad_id: int, spend: float}",
            text=(
                "Parquet, CSV: names and types of the columns"
                " ([types](objects.md#types-of-parquet) for Parquet)"
            ),
            default="as the rows have them",
        ),
    ] = {}
    mode: Annotated[
        str,
        Option(
            "upsert",
            MODES,
            text="[how results that change are written](pipeline.md#results-that-change)",
        ),
    ] = "append"
    by: Annotated[
        str | list[str],
        Option(
            "[country, city]",
            text="`upsert`: the field, or list of fields, that identifies a row",
            default="the key, and the window if there is one",
        ),
    ] = []
    mark: Mark = "change"
    partition_by: Annotated[
        str | list[str | dict[str, str]],
        Option(
            "[day(window_start), country]", text="[folders by value](objects.md#sink-partitions)"
        ),
    ] = []
    roll: Annotated[
        RollOptions | None,
        Option(
            "{size: 128MB, every: 10m}",
            text="when files that grow are closed: [objects](objects.md#sink-partitions)",
        ),
    ] = None
    spreadsheet_safe: Annotated[
        bool,
        Option(
            "true",
            text=(
                "CSV: `true` keeps [formulas](formats.md#csv-and-spreadsheets) out of spreadsheets"
            ),
        ),
    ] = False
    config: StoreConfig = {}

    def __post_init__(self) -> None:
        form = self.form()
        if not self.path or "\0" in self.path:
            raise ValueError(
                f"option 'path' is {self.path!r}; write a folder, for example path: results/alerts"
            )
        if address_of(self.path, other_system) is None and self.config:
            raise ValueError(
                "option 'config' is for the client of an object store (s3://, gs://, az://);"
                " remove it"
            )
        Partitioning(self.levels())
        flush_us(self.flush)
        if not 1 <= self.cut_records <= 1_000_000:
            raise ValueError(
                f"option 'cut_records' is {self.cut_records}; write how many rows a file has at"
                " most"
            )
        if self.fields and form.name in ("jsonl", "avro"):
            raise ValueError(
                "option 'fields' fixes the columns of format: parquet and csv; remove it"
            )
        if self.fields or form.name == "parquet":
            _check_types(self.fields)
        if self.spreadsheet_safe and form.name != "csv":
            raise ValueError("option 'spreadsheet_safe' is for format: csv; remove it")
        mode = Mode(self.mode)
        if mode is Mode.UPSERT and (self.partition_by or self.roll):
            name = "partition_by" if self.partition_by else "roll"
            raise ValueError(
                f"option {name!r} does not fit mode: upsert, which keeps one file for each shard;"
                " remove it"
            )
        if mode is Mode.UPSERT and form.name == "avro":
            raise ValueError(
                "option 'mode' is upsert, which writes jsonl, csv or parquet; choose one, or"
                " another mode"
            )
        if self.by and mode is not Mode.UPSERT:
            raise ValueError(
                "option 'by' says which fields identify a row of mode: upsert; remove it, or set"
                " the mode"
            )
        if not self.mark:
            raise ValueError(
                "option 'mark' is empty; write the name of a field, for example mark: change"
            )
        if self.fields and mode is Mode.CHANGELOG and self.mark not in self.fields:
            raise ValueError(f"option 'fields' lacks the mark; add {self.mark}: str")

    def levels(self) -> list[str | dict[str, str]]:
        """The folders of ``partition_by``, from the outside in."""
        return [self.partition_by] if isinstance(self.partition_by, str) else self.partition_by

    def form(self) -> Format:
        """The format. Raises ValueError for one that cannot work."""
        form = read_format(self.format, _FORMATS)
        if isinstance(form.options, AvroOptions) and form.options.schema is None:
            raise ValueError(
                "option 'format': avro needs 'schema', a file beside the pipeline or the schema"
                " itself; write for example {avro: {schema: row.avsc}}"
            )
        if isinstance(form.options, AvroOptions) and form.options.registry is not None:
            raise ValueError("option 'format': files have their schema within; remove 'registry'")
        if isinstance(form.options, CsvOptions) and form.options != CsvOptions():
            raise ValueError(
                "option 'format': csv has no options here; write 'fields', 'spreadsheet_safe'"
                " beside it"
            )
        return form


def _check_types(fields: Mapping[str, str]) -> None:
    # Loads PyArrow, a tenth of a second and some 10 MB for each process, which other formats do
    # without.
    from millwheel.connect.sinks.files.parquet import column_type

    for name, kind in fields.items():
        try:
            column_type(kind)
        except ValueError as ex:
            raise ValueError(f"option 'fields': {name!r} is {ex}") from None


def shape(options: FilesSinkOptions) -> Shape:
    """How records of these options become rows."""
    fields, mark = options.fields, options.mark if options.mode == Mode.CHANGELOG else None
    return Shape(
        options.form().name,
        options.with_key,
        options.with_timestamp,
        fields,
        mark,
        options.spreadsheet_safe,
    )


def takes_columns(options: FilesSinkOptions) -> bool:
    """Whether records in columns become a file without becoming objects first."""
    levels = options.levels()
    return (
        options.mode != Mode.UPSERT
        and options.form().name in ("jsonl", "parquet")
        and (not levels or Partitioning(levels).by_columns)
    )
