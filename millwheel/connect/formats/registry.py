"""Schemas by id, from a registry with Confluent's REST API, and messages that begin with such an
id.

A thread requests the schemas of a reader: a worker's loop waits only briefly for the answer and
retries later, so an unavailable registry stops the input and loses nothing. Answers are kept for
ever, since the schema of an id never changes.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from typing import Any, NamedTuple

from millwheel.connect.formats.options import RegistryOptions
from millwheel.errors import ExhaustedError, RecordError, SetupError, UnavailableError

log = logging.getLogger("millwheel.registry")
_MAGIC = 0  # Fixed: the first byte of a message whose schema has an id
HEADER_BYTES = 5
"""Fixed: the magic byte and the id, big-endian."""
_ANSWER_S = 5.0  # for one request
# how long a worker's loop waits for an answer; then the partition is read again later
_PATIENCE_S = 0.3
_LOG_EVERY_S = 60.0  # between warnings about the same registry
_NO_ENTRY = frozenset({401, 403})
_UNKNOWN_CODES = frozenset({404, 422})  # Fixed: HTTP's codes for permanent answers


class RegisteredSchema(NamedTuple):
    """The entry of an id in a registry. ``kind`` is AVRO, PROTOBUF or JSON; ``references`` are the
    schemas that it needs, in the order in which they must be parsed."""

    kind: str
    text: str
    references: tuple[str, ...] = ()


class Registry:
    """One registry, for any thread."""

    def __init__(self, options: RegistryOptions, client: Any = None) -> None:
        self._options = options
        self.url = options.url
        self._client = client if client is not None else _client(options)
        self._pool = ThreadPoolExecutor(1, "schema-registry")
        weakref.finalize(self, _end, self._pool, self._client)
        self._asked: dict[int, Future[RegisteredSchema]] = {}
        self._lock = threading.Lock()
        self._logged_at = -_LOG_EVERY_S

    def schema(self, number: int) -> RegisteredSchema:
        """The schema of an id. Raises RecordError for an id that the registry does not have,
        ExhaustedError while it does not answer, SetupError when it does not let us in."""
        with self._lock:
            future = self._asked.get(number)
            if future is None:
                future = self._asked[number] = self._pool.submit(self._fetch, number)
        try:
            return future.result(_PATIENCE_S)
        except RecordError:
            raise
        except TimeoutError as ex:
            raise ExhaustedError(
                f"the schema registry at {self.url} has not answered yet; nothing is lost"
            ) from ex
        except Exception as ex:
            with self._lock:  # ask again at the next read
                self._asked.pop(number, None)
            if _code(ex) in _NO_ENTRY:
                raise SetupError(
                    f"{self._away(ex)}. Check the credentials of the option 'registry'"
                ) from ex
            raise ExhaustedError(
                f"{self._away(ex)}. It is tried again; nothing is lost meanwhile"
            ) from ex

    def registered(self, subject: str, kind: str, text: str) -> int:
        """The id of a schema under a subject; registers it if that is allowed. Raises SetupError
        when the registry refuses it or does not have it, UnavailableError while the registry does
        not answer."""
        schema = _schema(text, kind)
        try:
            if self._options.auto_register:
                return int(self._client.register_schema(subject, schema))
            return int(self._client.lookup_schema(subject, schema).schema_id)
        except Exception as ex:
            code = _code(ex)
            if not code or code >= 500 or code == 429:
                self._warn(self._away(ex))
                raise UnavailableError(self._away(ex)) from ex
            raise SetupError(self._refusal(subject, ex)) from ex

    def _fetch(self, number: int) -> RegisteredSchema:
        try:
            schema = self._client.get_schema(number)
            return RegisteredSchema(
                schema.schema_type or "AVRO", schema.schema_str, tuple(self._references(schema))
            )
        except Exception as ex:
            if _code(ex) in _UNKNOWN_CODES:
                raise RecordError(
                    f"the schema registry at {self.url} has no schema with the id {number}"
                ) from ex
            raise

    def _references(self, schema: Any) -> list[str]:
        texts: list[str] = []
        for reference in schema.references or ():
            needed = self._client.get_version(reference.subject, reference.version).schema
            texts += [*self._references(needed), needed.schema_str]
        return list(dict.fromkeys(texts))

    def _refusal(self, subject: str, ex: Exception) -> str:
        code = _code(ex)
        where = f"the schema registry at {self.url}"
        if code == 409:
            return (
                f"{where} refuses the schema for the subject {subject!r}: it is not compatible with"
                f" what is there. Change the schema, or the subject's compatibility: {ex}"
            )
        if code == 404:
            return (
                f"{where} has no such schema under the subject {subject!r}; register it, or write"
                " auto_register: true"
            )
        if code in (401, 403):
            return f"{where} refuses user and password ({code}); check the option 'registry'"
        return f"{where} refuses the schema for the subject {subject!r}: {ex}"

    def _away(self, ex: Exception) -> str:
        return f"the schema registry at {self.url} does not answer: {type(ex).__name__}: {ex}"

    def _warn(self, text: str) -> None:
        now = time.monotonic()
        with self._lock:
            if now < self._logged_at + _LOG_EVERY_S:
                return
            self._logged_at = now
        log.warning("%s. It is tried again; nothing is lost meanwhile.", text)


def split(message: bytes) -> int:
    """The schema id at the beginning of a message. Raises RecordError when there is none."""
    if len(message) < HEADER_BYTES or message[0] != _MAGIC:
        raise RecordError(
            "it does not begin with the id of a schema (a zero byte, and four bytes of id)"
        )
    return int.from_bytes(message[1:HEADER_BYTES], "big")


def header(number: int) -> bytes:
    """The first bytes of a message with this schema id."""
    return bytes((_MAGIC,)) + number.to_bytes(4, "big")


class Registration:
    """The id of a sink's schema, requested once, by the thread that publishes."""

    def __init__(self, registry: Registry, subject: str, kind: str, text: str) -> None:
        self._registry = registry
        self._subject = subject
        self._kind = kind
        self._text = text
        self._id: int | None = None

    def number(self) -> int:
        """The id. Raises UnavailableError while the registry does not answer, SetupError when it
        refuses the schema."""
        if self._id is None:
            self._id = self._registry.registered(self._subject, self._kind, self._text)
        return self._id

    def check(self) -> None:
        """The driver's check before anything starts. Raises SetupError."""
        try:
            self.number()
        except UnavailableError as ex:
            raise SetupError(f"{ex}. Check the option 'registry'") from ex


def _end(pool: ThreadPoolExecutor, client: Any) -> None:
    """Release the thread and the client of a registry that has been dropped."""
    pool.shutdown(wait=False, cancel_futures=True)
    client.close()


def _code(ex: Exception) -> int:
    """The HTTP status of an answer, 0 where there was none."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    return int(ex.http_status_code) if isinstance(ex, SchemaRegistryError) else 0


def _client(options: RegistryOptions) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as ex:
        raise SetupError(
            "a schema registry needs more packages; install them with: pip install"
            " 'millwheel-spark[registry]'"
        ) from ex
    settings: dict[str, Any] = {
        "timeout": _ANSWER_S,
        "max.retries": 0,
        **options.config,
        "url": options.url,
    }
    if options.user:
        settings["basic.auth.user.info"] = f"{options.user}:{options.password}"
    try:
        return SchemaRegistryClient.new_client(settings)
    except (ValueError, TypeError) as ex:
        raise ValueError(f"option 'registry': {ex}") from ex


def _schema(text: str, kind: str) -> Any:
    from confluent_kafka.schema_registry import Schema

    return Schema(text, kind)


def build_registry(options: RegistryOptions | None) -> Registry | None:
    """The registry of these options, None for none. Raises ValueError for invalid settings."""
    return None if options is None else Registry(options)
