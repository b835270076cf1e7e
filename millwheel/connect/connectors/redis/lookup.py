"""Keys of Redis as a lookup: all keys of a request go in one pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec

from millwheel.connect.connectors.external.meanings import RowToBlameError
from millwheel.connect.connectors.redis import client
from millwheel.connect.connectors.redis.templates import template
from millwheel.connect.lookups.base import Lookup, LookupKey, LookupRefusedError, NoAnswer
from millwheel.connect.options import Option, read_options
from millwheel.errors import MillwheelError, RecordError

_STRING, _HASH = "string", "hash"


class RedisLookupOptions(msgspec.Struct, frozen=True):
    """Keys of Redis that belong to a record."""

    url: Annotated[
        str, Option('"redis://127.0.0.1:6379/0"', text="`redis://`, `rediss://` (TLS) or `unix://`")
    ]
    key: Annotated[
        str,
        Option(
            '"item:{item}"',
            text=(
                'the name of the key, with expressions over the record in braces: `"item:{item}"`'
            ),
        ),
    ]
    kind: Annotated[
        str,
        Option(
            "hash",
            (_HASH, _STRING),
            text=(
                "the type of the entry: a `hash` is an object with texts in its fields, a"
                " `string` a text"
            ),
        ),
    ] = _HASH
    format: Annotated[
        str, Option("json", ("text", "json"), text="of a `string`: `json` decodes it")
    ] = "text"

    def __post_init__(self) -> None:
        client.check_url(self.url)
        try:
            key_template = template(self.key)
        except ValueError as ex:
            raise ValueError(f"option 'key': {ex}") from ex
        if not key_template.expressions:
            raise ValueError(
                "option 'key' is the same for every record; write for example key: \"item:{item}\""
            )


def build_redis_lookup(options: Mapping[str, Any], folder: str = "") -> RedisKeyLookup:
    """Raises ValueError for invalid options."""
    return RedisKeyLookup(read_options("the lookup 'redis'", options, RedisLookupOptions))


class RedisKeyLookup(Lookup):
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
        answers = iter(self._asked([name for name in names if isinstance(name, str)]))
        return [self._answer(next(answers)) if isinstance(name, str) else name for name in names]

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
            answers: list[Any] = client.answered(self.where, pipeline.execute, raise_on_error=False)
        except RowToBlameError as ex:
            raise LookupRefusedError(str(ex)) from ex
        except MillwheelError:
            self.close()
            raise
        return answers

    def _answer(self, answer: Any) -> Any:
        if isinstance(answer, Exception):
            return self._no_answer(answer)
        if answer is None or answer == {}:
            return None
        if self._options.format == "text" or isinstance(answer, dict):
            return answer
        try:
            return msgspec.json.decode(answer)
        except msgspec.DecodeError as ex:
            return NoAnswer(f"the value in {self.where} is not JSON: {ex}")

    def _no_answer(self, error: Exception) -> NoAnswer:
        """The reason for no answer; raises if the error is about the server, not the key."""
        failure = client.in_words(error, self.where)
        if isinstance(failure, RowToBlameError):
            return NoAnswer(str(failure))
        raise failure
