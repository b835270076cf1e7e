"""Redis as a sink: strings, hashes, sorted sets and channels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from millwheel.connect.connectors.external.sink import ExternalSink
from millwheel.connect.connectors.external.target import ExternalTarget, Owner
from millwheel.connect.connectors.redis import client
from millwheel.connect.connectors.redis.rows import RedisRows
from millwheel.connect.connectors.redis.sink_options import RedisKind, RedisSinkOptions
from millwheel.connect.connectors.redis.target import RedisTarget
from millwheel.connect.options import read_options
from millwheel.connect.sinks.base import flush_us
from millwheel.errors import SetupError


def build_redis_sink(options: Mapping[str, Any], folder: str = "") -> RedisKeySink:
    """Raises ValueError for invalid options."""
    return RedisKeySink(read_options("the sink 'redis'", options, RedisSinkOptions))


class RedisKeySink(ExternalSink):
    """Built by :func:`build_redis_sink`."""

    def __init__(self, options: RedisSinkOptions) -> None:
        client.library()
        self._options = options
        self._rows = RedisRows(options)
        self.connect = partial(client.connect, options.url)
        self.where = client.where(options.url)
        self.flush_us = flush_us(options.flush)
        self.takes_retractions = self.replaces_rows = (
            RedisKind(options.kind) is not RedisKind.PUBSUB
        )

    def check(self, identity: str) -> None:
        """Check that the server answers and that we may write the keys of marks. Raises
        SetupError."""
        connection = self.connect()
        try:
            client.check_server(connection, self.where)
            key = f"{self._options.marks}{identity}/check"
            connection.hset(key, "token", "0")
            connection.delete(key)
        except client.library().exceptions.RedisError as ex:
            raise SetupError(
                f"{self.where} does not let us write keys that begin with {self._options.marks!r}:"
                f" {ex}"
            ) from ex
        finally:
            connection.close()

    def target(self, owner: Owner) -> ExternalTarget:
        return RedisTarget(self.connect, self._rows, owner, self._options.marks, self.where)
