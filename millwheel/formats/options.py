"""``format:`` of a source or a sink: a name, or a map of one name and its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from millwheel.options import one_of, read_options

Given: TypeAlias = str | dict[str, Any]
"""A format as a pipeline file has it."""


class RegistryOptions(msgspec.Struct, frozen=True):
    """A schema registry. ``subject`` is where a sink finds or registers its schema (default: TOPIC-value), and
    ``auto_register`` says whether it may register it. ``config`` passes further settings to the client."""

    url: str
    subject: str = ""
    auto_register: bool = True
    user: str = ""
    password: str = ""
    config: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://", "mock://")):
            raise ValueError(f"option 'registry': url is {self.url!r}; write for example http://127.0.0.1:8081")
        if bool(self.user) != bool(self.password):
            raise ValueError("option 'registry' has one of user and password; write both, or none")


class NoOptions(msgspec.Struct, frozen=True):
    """A format without options."""


class TextOptions(msgspec.Struct, frozen=True):
    """``field`` holds the message."""

    field: str = "value"


class CsvOptions(msgspec.Struct, frozen=True):
    """``columns`` in the order of a message's fields; a file without them begins with a header. ``spreadsheet_safe``
    is for what is written: see :func:`millwheel.formats.csv_rows.safe_cell`."""

    columns: list[str] = []
    delimiter: str = ","
    spreadsheet_safe: bool = False

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ValueError(f"option 'delimiter' is {self.delimiter!r}; write one character, for example ';'")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("option 'columns' names a column twice; give each its own name")


def not_for_sources(options: CsvOptions) -> None:
    """Raises ValueError for an option that is for what is written."""
    if options.spreadsheet_safe:
        raise ValueError("option 'format': spreadsheet_safe is for sinks; remove it")


class AvroOptions(msgspec.Struct, frozen=True):
    """``schema`` is a file beside the pipeline, or the schema itself. With a registry the writer's schema has the id
    that each message begins with, and ``schema`` is the reader's."""

    schema: str | dict[str, Any] | list[Any] | None = None
    registry: RegistryOptions | None = None
    decimals: str = "float"
    unknown_fields: str = "refuse"

    def __post_init__(self) -> None:
        one_of("decimals", self.decimals, ("float", "text"))
        one_of("unknown_fields", self.unknown_fields, ("refuse", "ignore"))


class ProtobufOptions(msgspec.Struct, frozen=True):
    """``descriptor`` is a file of ``protoc --descriptor_set_out`` and ``message`` a full name in it; without it
    ``message`` is ``module:Class``."""

    message: str
    descriptor: str = ""
    registry: RegistryOptions | None = None
    unknown_fields: str = "refuse"

    def __post_init__(self) -> None:
        one_of("unknown_fields", self.unknown_fields, ("refuse", "ignore"))
        if not self.descriptor and ":" not in self.message:
            raise ValueError(
                f"option 'message' is {self.message!r}; write module:Class, or name a descriptor file as well"
            )


class DebeziumOptions(msgspec.Struct, frozen=True):
    """``encoding`` is how an envelope is written, json or avro. ``add`` puts parts of the envelope into each record:
    field name to path, for example ``{changed_ms: ts_ms, table: source.table}``. ``key`` names the fields of the
    table's primary key, if the messages have another key, or none."""

    encoding: Given = "json"
    add: dict[str, str] = {}
    key: str | list[str] = []

    def __post_init__(self) -> None:
        read_format(self.encoding, ("json", "avro"), "encoding")


Options: TypeAlias = NoOptions | TextOptions | CsvOptions | AvroOptions | ProtobufOptions | DebeziumOptions
_KINDS: dict[str, type[Options]] = {
    "json": NoOptions,
    "jsonl": NoOptions,
    "parquet": NoOptions,
    "apache_combined": NoOptions,
    "raw": TextOptions,
    "text": TextOptions,
    "csv": CsvOptions,
    "avro": AvroOptions,
    "protobuf": ProtobufOptions,
    "debezium": DebeziumOptions,
}
_EXAMPLES = {
    "schema": "schema: click.avsc",
    "registry": 'registry: {url: "http://127.0.0.1:8081"}',
    "decimals": "decimals: text",
    "unknown_fields": "unknown_fields: ignore",
    "message": "message: shop.Click",
    "descriptor": "descriptor: clicks.desc",
    "encoding": "encoding: json",
    "add": "add: {changed_ms: ts_ms}",
    "key": "key: [id]",
    "columns": "columns: [id, amount]",
    "delimiter": 'delimiter: ";"',
    "spreadsheet_safe": "spreadsheet_safe: true",
    "field": "field: value",
}


class Format(msgspec.Struct, frozen=True):
    """A format by name, with its options."""

    name: str
    options: Options


def read_format(given: Given, known: Sequence[str], option: str = "format") -> Format:
    """Read a format. Raises ValueError, naming ``option``, for a format that is not in ``known``, or for invalid
    options of one."""
    name, inner = (given, {}) if isinstance(given, str) else _named(given, known, option)
    one_of(option, name, known)
    try:
        return Format(name, read_options(f"the format {name!r}", inner, _KINDS[name], _EXAMPLES))
    except ValueError as ex:
        raise ValueError(f"option {option!r}: {ex}") from None


def _named(given: Mapping[str, Any], known: Sequence[str], option: str) -> tuple[str, Mapping[str, Any]]:
    if len(given) != 1:
        raise ValueError(f"option {option!r} names one format with its options; write for example {{avro: {{…}}}}")
    name, inner = next(iter(given.items()))
    one_of(option, name, known)
    if inner is not None and not isinstance(inner, Mapping):
        raise ValueError(f"option {option!r}: {name} has a map of options; write for example {{{name}: {{…}}}}")
    return name, inner or {}
