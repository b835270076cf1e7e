"""Keys of Redis as a lookup: all keys of a request go in one pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from millwheel.connectors.external.meanings import RowToBlameError
from millwheel.connectors.redis import client, errors
from millwheel.connectors.redis.templates import template
from millwheel.errors import MillwheelError, RecordError
from millwheel.lookups.base import Lookup, LookupKey, LookupRefusedError, NoAnswer
from millwheel.options import one_of, read_options

_STRING, _HASH = "string", "hash"
_EXAMPLES = {
    "url": 'url: "redis://127.0.0.1:6379/0"',
    "key": 'key: "item:{item}"',
    "kind": "kind: hash",
    "format": "format: json",
}


class RedisLookupOptions(msgspec.Struct, frozen=True):
    """``key`` is a text with expressions over the record in braces. ``kind`` is the type of the entry: a ``hash``,
    whose answer is an object with text in its fields, or a ``string``, whose answer is text, or with ``format: json``
    the decoded JSON."""

    url: str
    key: str
    kind: str = _HASH
    format: str = "text"

    def __post_init__(self) -> None:
        client.check_url(self.url)
        one_of("kind", self.kind, (_HASH, _STRING))
        one_of("format", self.format, ("text", "json"))
        try:
            made = template(self.key)
        except ValueError as ex:
            raise ValueError(f"option 'key': {ex}") from ex
        if not made.expressions:
            raise ValueError("option 'key' is the same for every record; write for example key: \"item:{item}\"")


def build_redis_lookup(options: Mapping[str, Any]) -> RedisLookup:
    """Raises ValueError for invalid options."""
    return RedisLookup(read_options("the lookup 'redis'", options, RedisLookupOptions, _EXAMPLES))


class RedisLookup(Lookup):
    """Built by :func:`build_redis_lookup`."""

    def __init__(self, options: RedisLookupOptions) -> None:
        client.library()
        self._options = options
        self._template = template(options.key)
        self._client: Any = None
        self.connect: Callable[[], Any] = partial(client.connect, options.url)
        self.where = client.where(options.url)
        self.by = self._template.expressions

    def check(self) -> None:
        """Check that the server answers. Raises SetupError."""
        connection = self.connect()
        try:
            client.check_server(connection, self.where)
        finally:
            connection.close()

    def look_up(self, keys: Sequence[LookupKey]) -> Sequence[Any]:
        names = [self._name(key) for key in keys]
        found = iter(self._asked([name for name in names if isinstance(name, str)]))
        return [self._answer(next(found)) if isinstance(name, str) else name for name in names]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _name(self, key: LookupKey) -> str | NoAnswer:
        try:
            return self._template.filled(key)
        except RecordError as ex:
            return NoAnswer(str(ex))

    def _asked(self, names: Sequence[str]) -> list[Any]:
        if not names:
            return []
        if self._client is None:
            self._client = self.connect()
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            (pipeline.hgetall if self._options.kind == _HASH else pipeline.get)(name)
        try:
            found: list[Any] = client.answered(self.where, pipeline.execute, raise_on_error=False)
        except RowToBlameError as ex:
            raise LookupRefusedError(str(ex)) from ex
        except MillwheelError:
            self.close()
            raise
        return found

    def _answer(self, found: Any) -> Any:
        if isinstance(found, Exception):
            return self._no_answer(found)
        if found is None or found == {}:
            return None
        if self._options.format == "text" or isinstance(found, dict):
            return found
        try:
            return msgspec.json.decode(found)
        except msgspec.DecodeError as ex:
            return NoAnswer(f"what {self.where} has is no JSON: {ex}")

    def _no_answer(self, error: Exception) -> NoAnswer:
        """Whether it is about the key or about the server."""
        found = errors.in_words(error, self.where)
        if isinstance(found, RowToBlameError):
            return NoAnswer(str(found))
        raise found
