"""Values of options that have options themselves: ``format=CsvFormat(columns=["id", "amount"])``.

Generated from the declarations of the options: ``python -m tests.kinds --write``. An option that is
None has its default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

from millwheel.python.fluent.ends import DeclaredFormat, DeclaredOptions, Duration


@dataclass(frozen=True)
class SchemaRegistry(DeclaredOptions):
    """A registry of schemas; extra ``registry``.

    url: address of a registry with Confluent's REST API
    subject: the subject under which a sink finds or registers its schema (default:
        ``TOPIC-value``)
    auto_register: ``false``: the schema must already be registered (default: True)
    user: the name to log in with
    password: use ``${secret:NAME}``
    config: other settings of the client, for example ``{ssl.ca.location: ca.pem}``
    """

    url: str
    _: KW_ONLY
    subject: str | None = None
    auto_register: bool | None = None
    user: str | None = None
    password: str | None = None
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class FileRoll(DeclaredOptions):
    """When growing files are closed, for ``roll`` of a sink of files.

    size: a file that grows is closed once it has this many bytes (default: '128MB')
    every: or once it is this old (default: '10m')
    """

    _: KW_ONLY
    size: str | None = None
    every: Duration | None = None


@dataclass(frozen=True)
class AvroFormat(DeclaredFormat):
    """Avro.

    schema: a file, or the schema itself. Required for writing, and for reading messages without
        a registry. Elsewhere it is the reader's schema, to which data with other schemas is
        resolved (default: none)
    registry: the registry that has the writers' schemas (default: none)
    decimals: ``text`` keeps every digit (default: 'float')
    unknown_fields: ``ignore`` omits fields that the schema lacks, instead of refusing the row
        (default: 'refuse')
    """

    _kind: ClassVar[str] = "avro"
    _: KW_ONLY
    schema: str | Mapping[str, Any] | Sequence[Any] | None = None
    registry: SchemaRegistry | Mapping[str, Any] | None = None
    decimals: Literal["float", "text"] | None = None
    unknown_fields: Literal["refuse", "ignore"] | None = None


@dataclass(frozen=True)
class CsvFormat(DeclaredFormat):
    """CSV.

    columns: names of the fields, in order (default: required for messages; of a file, its
        header)
    delimiter: the character between fields (default: ',')
    spreadsheet_safe: for sinks: ``true`` keeps formulas out of spreadsheets (default: False)
    """

    _kind: ClassVar[str] = "csv"
    _: KW_ONLY
    columns: Sequence[str] | None = None
    delimiter: str | None = None
    spreadsheet_safe: bool | None = None


@dataclass(frozen=True)
class DebeziumFormat(DeclaredFormat):
    """Change events of Debezium.

    encoding: how an envelope is written; or ``{avro: {registry: {url: …}}}`` (default: 'json')
    add: parts of the envelope that become fields of each record: ``{changed_ms: ts_ms, table:
        source.table}``
    key: the fields of the table's primary key: the key (default: that of the message)
    """

    _kind: ClassVar[str] = "debezium"
    _: KW_ONLY
    encoding: Literal["json", "avro"] | AvroFormat | Mapping[str, Any] | None = None
    add: Mapping[str, str] | None = None
    key: str | Sequence[str] | None = None


@dataclass(frozen=True)
class ProtobufFormat(DeclaredFormat):
    """Protobuf.

    message: the full name of a message in ``descriptor``, or ``module:Class``
    descriptor: a file of ``protoc --include_imports --descriptor_set_out=FILE`` (default: none)
    registry: the registry that has the writers' schemas (default: none)
    unknown_fields: ``ignore`` omits fields that the schema lacks, instead of refusing the row
        (default: 'refuse')
    """

    _kind: ClassVar[str] = "protobuf"
    message: str
    _: KW_ONLY
    descriptor: str | None = None
    registry: SchemaRegistry | Mapping[str, Any] | None = None
    unknown_fields: Literal["refuse", "ignore"] | None = None


@dataclass(frozen=True)
class RawFormat(DeclaredFormat):
    """Messages as text, or as bytes.

    field: the field that holds the message (default: 'value')
    """

    _kind: ClassVar[str] = "raw"
    _: KW_ONLY
    field: str | None = None


@dataclass(frozen=True)
class TextFormat(DeclaredFormat):
    """Messages as text, or as bytes.

    field: the field that holds the message (default: 'value')
    """

    _kind: ClassVar[str] = "text"
    _: KW_ONLY
    field: str | None = None
