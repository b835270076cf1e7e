"""``format:`` of a source or a sink: a name, or a map of one name and its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec

from millwheel.connect.options import Option, one_of, read_options

Given: TypeAlias = str | dict[str, Any]
"""A format as a pipeline file has it."""


class RegistryOptions(msgspec.Struct, frozen=True):
    """A registry of schemas; extra ``registry``."""

    url: Annotated[
        str, Option("http://127.0.0.1:8081", text="address of a registry with Confluent's REST API")
    ]
    subject: Annotated[
        str,
        Option(
            "clicks-value",
            text="the subject under which a sink finds or registers its schema",
            default="`TOPIC-value`",
        ),
    ] = ""
    auto_register: Annotated[
        bool, Option("false", text="`false`: the schema must already be registered")
    ] = True
    user: Annotated[str, Option("registry", text="the name to log in with")] = ""
    password: Annotated[str, Option('"${secret:REGISTRY}"', text="use `${secret:NAME}`")] = ""
    config: Annotated[
        dict[str, Any],
        Option(
            "{timeout: 10}",
            text="other settings of the client, for example `{ssl.ca.location: ca.pem}`",
        ),
    ] = {}

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://", "mock://")):
            raise ValueError(
                f"option 'registry': url is {self.url!r}; write for example http://127.0.0.1:8081"
            )
        if bool(self.user) != bool(self.password):
            raise ValueError("option 'registry' has one of user and password; write both, or none")


class NoOptions(msgspec.Struct, frozen=True):
    """A format without options."""


class TextOptions(msgspec.Struct, frozen=True):
    """Messages as text, or as bytes."""

    field: Annotated[str, Option("value", text="the field that holds the message")] = "value"


class CsvOptions(msgspec.Struct, frozen=True):
    """CSV."""

    columns: Annotated[
        list[str],
        Option(
            "[id, amount]",
            text="names of the fields, in order",
            default="required for messages; of a file, its header",
        ),
    ] = []
    delimiter: Annotated[str, Option('";"', text="the character between fields")] = ","
    spreadsheet_safe: Annotated[
        bool,
        Option(
            "true",
            text=(
                "for sinks: `true` keeps"
                " [formulas](formats.md#csv-and-spreadsheets) out of spreadsheets"
            ),
        ),
    ] = False

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ValueError(
                f"option 'delimiter' is {self.delimiter!r}; write one character, for example ';'"
            )
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("option 'columns' names a column twice; give each its own name")


def not_for_sources(options: CsvOptions) -> None:
    """Raises ValueError for an option that only sinks have."""
    if options.spreadsheet_safe:
        raise ValueError("option 'format': spreadsheet_safe is for sinks; remove it")


class AvroOptions(msgspec.Struct, frozen=True):
    """Avro."""

    schema: Annotated[
        str | dict[str, Any] | list[Any] | None,
        Option(
            "click.avsc",
            text=(
                "a file, or the schema itself. Required for writing, and for reading messages"
                " without a registry. Elsewhere it is the reader's schema, to which data with"
                " other schemas is resolved"
            ),
            default="none",
        ),
    ] = None
    registry: Annotated[
        RegistryOptions | None,
        Option(
            '{url: "http://127.0.0.1:8081"}',
            text="[the registry](formats.md#schema-registry) that has the writers' schemas",
            default="none",
        ),
    ] = None
    decimals: Annotated[str, Option("text", ("float", "text"), text="`text` keeps every digit")] = (
        "float"
    )
    unknown_fields: Annotated[
        str,
        Option(
            "ignore",
            ("refuse", "ignore"),
            text="`ignore` omits fields that the schema lacks, instead of refusing the row",
        ),
    ] = "refuse"


class ProtobufOptions(msgspec.Struct, frozen=True):
    """Protobuf."""

    message: Annotated[
        str,
        Option("shop.Click", text="the full name of a message in `descriptor`, or `module:Class`"),
    ]
    descriptor: Annotated[
        str,
        Option(
            "clicks.desc",
            text="a file of `protoc --include_imports --descriptor_set_out=FILE`",
            default="none",
        ),
    ] = ""
    registry: Annotated[
        RegistryOptions | None,
        Option(
            '{url: "http://127.0.0.1:8081"}',
            text="[the registry](formats.md#schema-registry) that has the writers' schemas",
            default="none",
        ),
    ] = None
    unknown_fields: Annotated[
        str,
        Option(
            "ignore",
            ("refuse", "ignore"),
            text="`ignore` omits fields that the schema lacks, instead of refusing the row",
        ),
    ] = "refuse"

    def __post_init__(self) -> None:
        if not self.descriptor and ":" not in self.message:
            raise ValueError(
                f"option 'message' is {self.message!r}; write module:Class, or name a descriptor"
                " file as well"
            )


_ENVELOPES: Mapping[str, type[msgspec.Struct]] = {"json": NoOptions, "avro": AvroOptions}
"""The formats in which an envelope of Debezium may be written."""


class DebeziumOptions(msgspec.Struct, frozen=True):
    """Change events of Debezium."""

    encoding: Annotated[
        Given,
        Option(
            "json",
            tuple(_ENVELOPES),
            forms=_ENVELOPES,
            text="how an envelope is written; or `{avro: {registry: {url: …}}}`",
        ),
    ] = "json"
    add: Annotated[
        dict[str, str],
        Option(
            "{changed_ms: ts_ms}",
            text=(
                "parts of the envelope that become fields of each record: `{changed_ms:"
                " ts_ms, table: source.table}`"
            ),
        ),
    ] = {}
    key: Annotated[
        str | list[str],
        Option(
            "[id]",
            text="the fields of the table's primary key: [the key](formats.md#debezium)",
            default="that of the message",
        ),
    ] = []

    def __post_init__(self) -> None:
        read_format(self.encoding, tuple(_ENVELOPES), "encoding")


Options: TypeAlias = (
    NoOptions | TextOptions | CsvOptions | AvroOptions | ProtobufOptions | DebeziumOptions
)
FORMS: Mapping[str, type[Options]] = {
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


class Format(msgspec.Struct, frozen=True):
    """A format by name, with its options."""

    name: str
    options: Options


def read_format(choice: Given, names: Sequence[str], option: str = "format") -> Format:
    """Read a format. Raises ValueError, naming ``option``, for a format that is not in ``names``,
    or for invalid options of one."""
    name, inner = (choice, {}) if isinstance(choice, str) else _named(choice, names, option)
    one_of(option, name, names)
    try:
        return Format(name, read_options(f"the format {name!r}", inner, FORMS[name]))
    except ValueError as ex:
        raise ValueError(f"option {option!r}: {ex}") from None


def _named(
    choice: Mapping[str, Any], names: Sequence[str], option: str
) -> tuple[str, Mapping[str, Any]]:
    if len(choice) != 1:
        raise ValueError(
            f"option {option!r} names one format with its options; write for example {{avro:"
            " {…}}"
        )
    name, inner = next(iter(choice.items()))
    one_of(option, name, names)
    if inner is not None and not isinstance(inner, Mapping):
        raise ValueError(
            f"option {option!r}: {name} has a map of options; write for example {{{name}: {{…}}}}"
        )
    return name, inner or {}
