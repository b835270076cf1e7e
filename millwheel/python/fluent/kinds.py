"""The sources of ``read``, the sinks of ``write`` and the lookups of ``look_up``, with all options
of a pipeline file.

Generated from the declarations of the options: ``python -m tests.kinds --write``. An option that is
None has its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from millwheel.python.fluent.ends import (
    DeclaredLookup,
    DeclaredSink,
    DeclaredSource,
    Duration,
    PathText,
)
from millwheel.python.fluent.option_values import (
    AvroFormat,
    CsvFormat,
    DebeziumFormat,
    FileRoll,
    ProtobufFormat,
    RawFormat,
    TextFormat,
)


@dataclass(frozen=True)
class FileSource(DeclaredSource):
    """Files, each read in order by one worker.

    path: a file, a glob (``**`` descends into folders), a folder, or a list of them; also of
        objects (``s3://…``, ``gs://…``, ``az://…``)
    format: how records are written; formats with options
    follow: ``true``: read on as files grow and new ones appear, and never end (default: False)
    delimiter: CSV: the character between fields (default: ',')
    columns: CSV: names of the columns, for files without a header (default: the first line)
    max_line_bytes: longer lines go to the dead letters (default: 1 MiB)
    names: ``rising``: new objects of a bucket have greater names than old ones, so a listing
        continues after the last one (default: 'any')
    config: for ``path: s3://…``, ``gs://…``, ``az://…``: settings of the client of the object
        store
    """

    _kind: ClassVar[str] = "files"
    path: PathText | Sequence[PathText]
    format: (
        Literal["jsonl", "csv", "parquet", "avro", "apache_combined"]
        | AvroFormat
        | CsvFormat
        | Mapping[str, Any]
    )
    _: KW_ONLY
    follow: bool | None = None
    delimiter: str | None = None
    columns: Sequence[str] | None = None
    max_line_bytes: int | None = None
    names: Literal["any", "rising"] | None = None
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class GeneratorSource(DeclaredSource):
    """Synthetic records, for load tests and tutorials. Their event times advance by 1/``rate``, at
    rate 0 as for 1,000,000/s.

    rate: records per second, all partitions together; ``0``: as fast as they are consumed
        (default: 1000.0)
    count: end after this many records, all partitions together (default: never)
    keys: number of different keys (default: 1000)
    partitions: number of partitions (default: 1)
    factory: ``module:function`` that makes a value from (index, partition number) (default: the
        values above)
    seed: another seed gives other records (default: 0)
    start: event time of the first record, ISO 8601 (default: '2025-01-01T00:00:00Z')
    """

    _kind: ClassVar[str] = "generator"
    _: KW_ONLY
    rate: float | None = None
    count: int | None = None
    keys: int | None = None
    partitions: int | None = None
    factory: Callable[[int, int], Any] | str | None = None
    seed: int | None = None
    start: str | datetime | None = None


@dataclass(frozen=True)
class HttpSource(DeclaredSource):
    """Records that are sent in by POST, as JSON lines or CloudEvents. Give the stream an ``id``.
    Extra ``http``.

    port: the port to listen on
    host: the address to listen on; any but the loopback needs ``--security`` (default:
        '127.0.0.1')
    max_bytes: the largest request, unpacked (default: 4000000)
    max_requests: the number of requests in progress at once (default: 64)
    body_timeout: how long the body of a request may take (1s to 10m); then the answer is 408,
        and its place is free (default: '30s')
    client_certificates: with ``--security``: whether clients must show a certificate (default:
        True)
    allow_hosts: on the loopback: names by which browsers may call the endpoint, beside those of
        this machine, for example behind a proxy; programs may use any (default: none)
    allow_origins: sites whose pages may send records from a browser, such as
        ``https://shop.example.com``; ``"*"`` for all (default: none)
    """

    _kind: ClassVar[str] = "http"
    port: int | str
    _: KW_ONLY
    host: str | None = None
    max_bytes: int | None = None
    max_requests: int | None = None
    body_timeout: Duration | None = None
    client_certificates: bool | None = None
    allow_hosts: Sequence[str] | None = None
    allow_origins: Sequence[str] | None = None


@dataclass(frozen=True)
class InjectionSource(DeclaredSource):
    """Records that are sent in from outside, by ``millwheel inject`` or over gRPC. Give the stream
    an ``id``.
    """

    _kind: ClassVar[str] = "injection"


@dataclass(frozen=True)
class KafkaSource(DeclaredSource):
    """Messages of Kafka topics. Extra ``kafka``.

    brokers: ``host:port``, several with commas
    topics: a list of names, or one pattern that begins with ``^``
    format: how messages are written; formats with options (default: 'json')
    start: where to begin a partition that is new to the root: ``earliest``, ``latest``, ``{time:
        2026-01-01T00:00:00Z}``, or ``{group: name}`` for the committed offsets of a consumer
        group (default: 'earliest')
    until: ``latest``: end after the messages that exist when the root is new (default: never
        ends)
    group: a consumer group that gets our positions, for tools that show lag; they are never read
        back
    on_gap: if retention has deleted unread messages: ``stop`` the run with an error, or
        ``continue`` with the oldest message and make a dead letter that names the missing
        offsets (default: 'stop')
    isolation: ``read_uncommitted`` also reads messages of open and aborted transactions
        (default: 'read_committed')
    key_field: a field for the message's key (text)
    timestamp_field: a field for the message's timestamp (ms)
    headers_field: a field for the message's headers (a map)
    tombstones: ``reject``: a message without a value becomes a dead letter; ``skip``: it is
        ignored; ``delete``: it deletes the row of its key from the table that the stream is
        (default: ``reject`` (``debezium``: ``skip``))
    config: any other setting of librdkafka, for example ``{security.protocol: ssl}``; use
        ``${secret:NAME}`` for passwords
    """

    _kind: ClassVar[str] = "kafka"
    brokers: str
    topics: str | Sequence[str]
    format: (
        Literal["json", "csv", "text", "raw", "avro", "protobuf", "debezium"]
        | AvroFormat
        | CsvFormat
        | DebeziumFormat
        | ProtobufFormat
        | RawFormat
        | TextFormat
        | Mapping[str, Any]
        | None
    ) = None
    _: KW_ONLY
    start: Literal["earliest", "latest"] | Mapping[str, Any] | None = None
    until: Literal["latest"] | None = None
    group: str | None = None
    on_gap: Literal["stop", "continue"] | None = None
    isolation: Literal["read_committed", "read_uncommitted"] | None = None
    key_field: str | None = None
    timestamp_field: str | None = None
    headers_field: str | None = None
    tombstones: Literal["reject", "skip", "delete"] | None = None
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PostgresSource(DeclaredSource):
    """Rows of a table or a query of PostgreSQL. Extra ``postgres``.

    dsn: a connection string of libpq, as URL or as ``host=… user=…``; write passwords as
        ``${secret:NAME}``
    order_by: a column of whole numbers or times, unique and never null; an index on it makes
        pages cheap
    table: the table to read (default: this or ``query``)
    query: one ``select`` to read (default: this or ``table``)
    partitions: the values of ``order_by`` are divided into this many partitions of equal width,
        which are read in parallel (default: 1)
    page_rows: rows per page; a thread fetches two pages ahead (default: 5000)
    """

    _kind: ClassVar[str] = "postgres"
    dsn: str
    order_by: str
    _: KW_ONLY
    table: str | None = None
    query: str | None = None
    partitions: int | None = None
    page_rows: int | None = None


@dataclass(frozen=True)
class DeltaSink(DeclaredSink):
    """Rows of a Delta table. Extra ``delta``.

    path: a folder, or an address that deltalake takes (``s3://…``, ``gs://…``, ``abfss://…``)
    mode: ``upsert``: the latest row of each identity, without retracted ones; ``changelog``: a
        row per change, with a mark (default: 'append')
    by: the field, or fields, that identify a row of ``upsert`` (default: required for
        ``upsert``)
    mark: ``changelog``: the name of the field that contains ``+`` or ``-`` (default: 'change')
    fields: columns and types; if the table does not exist, it is created with them
    flush: how long a row waits for others of its batch (default: '10s')
    batch_rows: the most rows in a batch; one commit may contain several batches (default: 10000)
    with_key: ``true``: add the record's key as the field ``key`` (default: False)
    with_timestamp: ``true``: add the record's timestamp (µs) as the field ``timestamp``
        (default: False)
    config: options of deltalake's object store, with ``${secret:NAME}`` for secrets
    """

    _kind: ClassVar[str] = "delta"
    path: PathText
    _: KW_ONLY
    mode: Literal["append", "changelog", "upsert"] | None = None
    by: str | Sequence[str] | None = None
    mark: str | None = None
    fields: Mapping[str, str] | None = None
    flush: Duration | None = None
    batch_rows: int | None = None
    with_key: bool | None = None
    with_timestamp: bool | None = None
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class FileSink(DeclaredSink):
    """Part files in a folder: whole, committed and final. They contain each record exactly once.

    path: the folder, also of an object store (``s3://…``, ``gs://…``, ``az://…``)
    format: how rows are written; formats with options, such as ``{avro: {schema: row.avsc}}``
        (default: 'jsonl')
    with_key: ``true``: add the record's key as the field ``key`` (default: False)
    with_timestamp: ``true``: add the record's timestamp (µs) as the field ``timestamp``
        (default: False)
    flush: a file is written once its first record has waited this long … (default: '1s')
    cut_records: … or once there are this many (default: 50000)
    fields: Parquet, CSV: names and types of the columns (types for Parquet) (default: as the
        rows have them)
    mode: how results that change are written (default: 'append')
    by: ``upsert``: the field, or list of fields, that identifies a row (default: the key, and
        the window if there is one)
    mark: ``changelog``: the name of the field that contains ``+`` or ``-`` (default: 'change')
    partition_by: folders by value
    roll: when files that grow are closed: objects
    spreadsheet_safe: CSV: ``true`` keeps formulas out of spreadsheets (default: False)
    config: for ``path: s3://…``, ``gs://…``, ``az://…``: settings of the client of the object
        store
    """

    _kind: ClassVar[str] = "files"
    path: PathText
    format: (
        Literal["jsonl", "csv", "parquet", "avro"]
        | AvroFormat
        | CsvFormat
        | Mapping[str, Any]
        | None
    ) = None
    _: KW_ONLY
    with_key: bool | None = None
    with_timestamp: bool | None = None
    flush: Duration | None = None
    cut_records: int | None = None
    fields: Mapping[str, str] | None = None
    mode: Literal["append", "changelog", "upsert"] | None = None
    by: str | Sequence[str] | None = None
    mark: str | None = None
    partition_by: str | Sequence[str | Mapping[str, str]] | None = None
    roll: FileRoll | Mapping[str, Any] | None = None
    spreadsheet_safe: bool | None = None
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class IcebergSink(DeclaredSink):
    """Rows of an Iceberg table. Extra ``iceberg``.

    table: ``namespace.table``
    catalog: settings of pyiceberg's catalog (``type``, ``uri``, ``warehouse``, …), and its
        ``name`` (``default``)
    mode: ``upsert``: the latest row of each identity, without retracted ones; ``changelog``: a
        row per change, with a mark (default: 'append')
    by: the field, or fields, that identify a row of ``upsert`` (default: required for
        ``upsert``)
    mark: ``changelog``: the name of the field that contains ``+`` or ``-`` (default: 'change')
    fields: columns and types; if the table does not exist, it is created with them
    flush: how long a row waits for others of its batch (default: '10s')
    batch_rows: the most rows in a batch; one commit may contain several batches (default: 10000)
    with_key: ``true``: add the record's key as the field ``key`` (default: False)
    with_timestamp: ``true``: add the record's timestamp (µs) as the field ``timestamp``
        (default: False)
    """

    _kind: ClassVar[str] = "iceberg"
    table: str
    catalog: Mapping[str, Any]
    _: KW_ONLY
    mode: Literal["append", "changelog", "upsert"] | None = None
    by: str | Sequence[str] | None = None
    mark: str | None = None
    fields: Mapping[str, str] | None = None
    flush: Duration | None = None
    batch_rows: int | None = None
    with_key: bool | None = None
    with_timestamp: bool | None = None


@dataclass(frozen=True)
class KafkaSink(DeclaredSink):
    """Messages to Kafka topics. Extra ``kafka``.

    brokers: ``host:port``, several with commas
    topic: a topic that exists, or ``{by: "'clicks-' + country", among: [clicks-de,
        clicks-fr]}``, which computes it per row; a row for any other topic becomes a dead letter
    format: as for the source; ``debezium`` writes changes, with ``mode: changelog`` (default:
        'json')
    key: an expression over the record's value: the message's key
    headers: expressions that make the message's headers
    partition: an expression for the number of the message's partition (default: the key decides)
    guarantee: ``exactly_once`` writes rows and their number in one transaction; after a crash
        ``at_least_once`` may repeat rows (default: 'exactly_once')
    mode: ``changelog``: a retraction is a row with a mark; ``upsert``: a retraction is a
        tombstone of its ``key`` (default: 'append')
    mark: ``changelog``: the name of the field that contains ``+`` or ``-`` (default: 'change')
    flush: how long a row waits for others of its batch (default: '20ms')
    marks_topic: the compacted topic with the number of the last batch that each shard of the
        sink has published; created if it does not exist. If you delete it while a pipeline is
        stopped, its last batch may be published twice (default: 'millwheel-marks')
    event_time: ``true`` gives each message the time of its record. Brokers apply retention to
        that time, so they would delete a replay of old data at once, and they refuse times in
        the future (default: False)
    with_key: ``true``: add the record's key as the field ``key`` (default: False)
    with_timestamp: ``true``: add the record's timestamp (µs) as the field ``timestamp``
        (default: False)
    config: any other setting of librdkafka
    """

    _kind: ClassVar[str] = "kafka"
    brokers: str
    topic: str | Mapping[str, Any]
    format: (
        Literal["json", "csv", "text", "raw", "avro", "protobuf", "debezium"]
        | AvroFormat
        | CsvFormat
        | DebeziumFormat
        | ProtobufFormat
        | RawFormat
        | TextFormat
        | Mapping[str, Any]
        | None
    ) = None
    _: KW_ONLY
    key: str | None = None
    headers: Mapping[str, str] | None = None
    partition: str | None = None
    guarantee: Literal["exactly_once", "at_least_once"] | None = None
    mode: Literal["append", "changelog", "upsert"] | None = None
    mark: str | None = None
    flush: Duration | None = None
    marks_topic: str | None = None
    event_time: bool | None = None
    with_key: bool | None = None
    with_timestamp: bool | None = None
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PostgresSink(DeclaredSink):
    """Rows of a table of PostgreSQL. Extra ``postgres``.

    dsn: a connection string of libpq, as URL or as ``host=… user=…``. Write passwords as
        ``${secret:NAME}``: they appear in no log, root or error
    table: with its schema if that is not in the search path: ``billing.ctr``. A name that has a
        dot itself in double quotes: ``'"my.table"'``. A view needs to take rows
    mode: ``append``: each record is a row. ``upsert``: the table has the latest row of each
        ``by``. ``changelog``: each record is a row, with ``+`` or ``-`` in the column ``mark``
        (default: 'append')
    by: the columns that identify a row of ``upsert``. The table needs a primary key or unique
        index on exactly these (default: required for ``upsert``)
    columns: maps each column to an expression over the row (default: each field goes to the
        column of its name)
    create: maps each column to its type: if the table does not exist, it is created, with ``by``
        as its primary key
    mark: ``changelog``: the name of the field that contains ``+`` or ``-`` (default: 'change')
    flush: how long a row waits for others of its batch (default: '100ms')
    cut_records: the most rows of a transaction (default: 5000)
    batches_table: the table of numbers and tokens, created if it does not exist (default:
        'millwheel_batches')
    with_key: ``true``: add the record's key as the field ``key`` (default: False)
    with_timestamp: ``true``: add the record's timestamp (µs) as the field ``timestamp``
        (default: False)
    """

    _kind: ClassVar[str] = "postgres"
    dsn: str
    table: str
    _: KW_ONLY
    mode: Literal["append", "changelog", "upsert"] | None = None
    by: str | Sequence[str] | None = None
    columns: Mapping[str, str] | None = None
    create: Mapping[str, str] | None = None
    mark: str | None = None
    flush: Duration | None = None
    cut_records: int | None = None
    batches_table: str | None = None
    with_key: bool | None = None
    with_timestamp: bool | None = None


@dataclass(frozen=True)
class RedisSink(DeclaredSink):
    """Keys of Redis, or messages of its channels. Extra ``redis``.

    url: ``redis://``, ``rediss://`` (TLS) or ``unix://``; a password by
        ``redis://user:${secret:REDIS}@host:6379/0``
    key: the name of the key (for ``pubsub``, of the channel), with expressions over the row in
        braces: ``"ctr:{ad_id}"``. Write ``{{`` and ``}}`` for literal braces. Values stand there
        as they are: between two fields choose a separator that neither can contain
    kind: the form of a row, see below (default: 'hash')
    value: for ``string`` and ``pubsub``: an expression; text is written unchanged, anything else
        as JSON (default: the row)
    fields: for ``hash``: the fields to write (default: all)
    member: the member of a ``sorted_set``, written like ``key`` (default: required for
        ``sorted_set``)
    score: an expression for the score of the member (default: required for ``sorted_set``)
    expire: how long a key lives after it was written: a duration, or ``window`` for the length
        of the row's window (``window_end`` − ``window_start``) (default: never)
    flush: how long a row waits for others of its batch (default: '20ms')
    marks: prefix of the keys that record the last batch written: one small hash per shard of the
        sink (default: 'millwheel:')
    """

    _kind: ClassVar[str] = "redis"
    url: str
    key: str
    _: KW_ONLY
    kind: Literal["string", "hash", "sorted_set", "pubsub"] | None = None
    value: str | None = None
    fields: Sequence[str] | None = None
    member: str | None = None
    score: str | None = None
    expire: Duration | None = None
    flush: Duration | None = None
    marks: str | None = None


@dataclass(frozen=True)
class StdoutSink(DeclaredSink):
    """JSON lines on standard output. They cannot be taken back: after a crash the last ones may be
    printed again.

    with_key: ``true``: add the record's key as the field ``key`` (default: False)
    with_timestamp: ``true``: add the record's timestamp (µs) as the field ``timestamp``
        (default: False)
    flush: how long a row waits for others of its batch (default: '100ms')
    at_once: ``true``: lines are printed before they are committed (default: False)
    mode: how results that change are printed (default: 'append')
    mark: ``changelog``: the name of the field that contains ``+`` or ``-`` (default: 'change')
    """

    _kind: ClassVar[str] = "stdout"
    _: KW_ONLY
    with_key: bool | None = None
    with_timestamp: bool | None = None
    flush: Duration | None = None
    at_once: bool | None = None
    mode: Literal["append", "changelog"] | None = None
    mark: str | None = None


@dataclass(frozen=True)
class PostgresLookup(DeclaredLookup):
    """Rows of PostgreSQL that belong to a record. Extra ``postgres``.

    dsn: a connection string of libpq, as URL or as ``host=… user=…``
    by: the columns that make the key
    table: the table to ask (default: this or ``query``)
    query: one ``select`` whose rows are asked (default: this or ``table``)
    columns: the columns of the answer (default: all)
    """

    _kind: ClassVar[str] = "postgres"
    dsn: str
    by: str | Sequence[str]
    _: KW_ONLY
    table: str | None = None
    query: str | None = None
    columns: Sequence[str] | None = None


@dataclass(frozen=True)
class RedisLookup(DeclaredLookup):
    """Keys of Redis that belong to a record. Extra ``redis``.

    url: ``redis://``, ``rediss://`` (TLS) or ``unix://``
    key: the name of the key, with expressions over the record in braces: ``"item:{item}"``
    kind: the type of the entry: a ``hash`` is an object with texts in its fields, a ``string`` a
        text (default: 'hash')
    format: of a ``string``: ``json`` decodes it (default: 'text')
    """

    _kind: ClassVar[str] = "redis"
    url: str
    key: str
    _: KW_ONLY
    kind: Literal["hash", "string"] | None = None
    format: Literal["text", "json"] | None = None
