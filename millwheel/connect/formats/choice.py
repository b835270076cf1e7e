"""The decoder and the encoder of a format, by its name and options."""

from __future__ import annotations

from collections.abc import Mapping

from millwheel.connect.formats.base import MessageDecoder, MessageEncoder
from millwheel.connect.formats.lines import (
    CsvMessageRows,
    CsvMessages,
    JsonMessages,
    JsonRows,
    TextMessages,
    TextRows,
)
from millwheel.connect.formats.options import (
    AvroOptions,
    CsvOptions,
    DebeziumOptions,
    Format,
    ProtobufOptions,
    RegistryOptions,
    TextOptions,
    not_for_sources,
    read_format,
)
from millwheel.connect.formats.registry import Registration, build_registry
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.errors import SetupError

MESSAGE_FORMATS = ("json", "csv", "text", "raw", "avro", "protobuf", "debezium")
"""The names of the formats of messages."""


def build_decoder(form: Format, folder: str, fields: Mapping[str, str]) -> MessageDecoder:
    """The decoder of messages to dicts; ``fields`` are the declared ones. Paths of schemas are
    relative to ``folder``. Raises ValueError for invalid options."""
    options = form.options
    if isinstance(options, AvroOptions):
        return _avro_decoder(options, folder, fields)
    if isinstance(options, ProtobufOptions):
        return _protobuf_decoder(options, folder, fields)
    if isinstance(options, DebeziumOptions):
        from millwheel.connect.formats.debezium import DebeziumMessages

        encoding = read_format(options.encoding, ("json", "avro"), "encoding")
        envelopes = (
            JsonMessages(exact=FieldTypes(fields).decimals)
            if encoding.name == "json"
            else build_decoder(encoding, folder, {})
        )
        return DebeziumMessages(envelopes, options, fields)
    if isinstance(options, CsvOptions):
        not_for_sources(options)
        return CsvMessages(options, fields)
    if isinstance(options, TextOptions):
        return TextMessages(options, form.name == "raw")
    return JsonMessages(None, fields)


def build_encoder(form: Format, folder: str, subject: str) -> MessageEncoder:
    """The encoder of rows to messages. ``subject`` is the default subject of the schema in the
    registry. Raises ValueError for invalid options."""
    options = form.options
    if isinstance(options, AvroOptions):
        return _avro_encoder(options, folder, subject)
    if isinstance(options, ProtobufOptions):
        return _protobuf_encoder(options, folder, subject)
    if isinstance(options, CsvOptions):
        return CsvMessageRows(options)
    if isinstance(options, TextOptions):
        return TextRows(options, form.name == "raw")
    return JsonRows()


def _avro_decoder(options: AvroOptions, folder: str, fields: Mapping[str, str]) -> MessageDecoder:
    from millwheel.connect.formats.avro.messages import AvroMessages
    from millwheel.connect.formats.avro.schema import load_schema

    schema = None if options.schema is None else load_schema(options.schema, folder)
    return AvroMessages(schema, build_registry(options.registry), options.decimals, fields)


def _avro_encoder(options: AvroOptions, folder: str, subject: str) -> MessageEncoder:
    from millwheel.connect.formats.avro.messages import AvroEncoder
    from millwheel.connect.formats.avro.schema import load_schema, schema_text

    if options.schema is None:
        raise ValueError(
            "option 'format': avro needs 'schema' to write; name a file beside the pipeline"
        )
    schema = load_schema(options.schema, folder)
    registration = _registration(options.registry, subject, "AVRO", schema_text(schema))
    return AvroEncoder(schema, options.unknown_fields == "refuse", registration)


def _protobuf_decoder(
    options: ProtobufOptions, folder: str, fields: Mapping[str, str]
) -> MessageDecoder:
    _need_protobuf()
    from millwheel.connect.formats.protobuf_messages import ProtobufMessages, message_class

    return ProtobufMessages(
        message_class(options, folder), build_registry(options.registry), fields
    )


def _protobuf_encoder(options: ProtobufOptions, folder: str, subject: str) -> MessageEncoder:
    _need_protobuf()
    from millwheel.connect.formats.protobuf_messages import (
        ProtobufEncoder,
        file_text,
        message_class,
    )

    message_type = message_class(options, folder)
    registration = _registration(
        options.registry, subject, "PROTOBUF", file_text(message_type.DESCRIPTOR)
    )
    return ProtobufEncoder(message_type, options.unknown_fields == "refuse", registration)


def _need_protobuf() -> None:
    try:
        import google.protobuf  # noqa: F401
    except ImportError as ex:
        raise SetupError(
            "Protobuf needs the package protobuf; install it with: pip install protobuf"
        ) from ex


def _registration(
    options: RegistryOptions | None, subject: str, kind: str, text: str
) -> Registration | None:
    registry = build_registry(options)
    if registry is None or options is None:
        return None
    if not (options.subject or subject):
        raise ValueError(
            "option 'format': the registry needs 'subject' where rows go to several topics"
        )
    return Registration(registry, options.subject or subject, kind, text)
