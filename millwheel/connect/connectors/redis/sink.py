"""Redis as a sink: strings, hashes, sorted sets and channels.

A batch, its number and the token of its writer are written in one script, which Redis runs as one
piece.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from millwheel.connect.connectors.external.sink import ExternalSink
from millwheel.connect.connectors.external.target import (
    NOTHING_YET,
    ExternalTarget,
    Owner,
    RowsRefusedError,
)
from millwheel.connect.connectors.redis import client
from millwheel.connect.connectors.redis.client import answered
from millwheel.connect.connectors.redis.operations import Operation, RedisRows
from millwheel.connect.connectors.redis.sink_options import RedisKind, RedisSinkOptions
from millwheel.connect.options import read_options
from millwheel.connect.sinks.base import SinkRecord, flush_us
from millwheel.core.model.names import Token
from millwheel.errors import MillwheelError, SetupError, UnavailableError

_log = logging.getLogger("millwheel.connectors")

_FENCE = """
local mark = redis.call('HMGET', KEYS[1], 'token', 'number')
local token, number = tonumber(mark[1] or '-1'), mark[2] or '-1'
if token < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'token', ARGV[1], 'number', number)
  token = tonumber(ARGV[1])
end
return {token, tonumber(number)}
"""

# Redis does not undo the writes of a script that fails. So all types are checked before the first
# write: else the rows before the refused one are written again with the rest of the batch, and
# messages are sent twice
# (test_a_key_of_another_type_refuses_its_rows_with_the_words_of_the_server).
_WRITE = """
local mark = redis.call('HMGET', KEYS[1], 'token', 'number')
if not mark[1] then return {'forgotten'} end
if tonumber(mark[1]) ~= tonumber(ARGV[1]) then return {'fenced', mark[1]} end
if tonumber(mark[2]) >= tonumber(ARGV[2]) then return {'written'} end
local looks = {set = 'STRLEN', set_back = 'STRLEN', hash = 'HLEN', hash_back = 'HLEN',
  add = 'ZCARD',
  add_back = 'ZCARD', rem = 'ZCARD'}
local operations, refused, at = {}, {'refused'}, 3
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  local words = {}
  for i = at + 1, at + count do words[#words + 1] = ARGV[i] end
  operations[#operations + 1] = words
  at = at + count + 1
  local look = looks[words[1]]
  if look then
    local answer = redis.pcall(look, KEYS[#operations + 1])
    if type(answer) == 'table' and answer.err then
      refused[#refused + 1] = #operations - 1
      refused[#refused + 1] = answer.err
    end
  end
end
if #refused > 1 then return refused end
local function same_hash(key, words)
  if redis.call('HLEN', key) * 2 ~= #words - 1 then return false end
  for i = 2, #words, 2 do
    if redis.call('HGET', key, words[i]) ~= words[i + 1] then return false end
  end
  return true
end
local writes = {
  set = function(key, words) redis.call('SET', key, words[3]) end,
  hash = function(key, words)
    redis.call('DEL', key)
    for i = 3, #words, 2 do redis.call('HSET', key, words[i], words[i + 1]) end
  end,
  add = function(key, words) redis.call('ZADD', key, words[3], words[4]) end,
  rem = function(key, words) redis.call('ZREM', key, words[2]) end,
  drop = function(key) redis.call('DEL', key) end,
  say = function(key, words) redis.call('PUBLISH', key, words[2]) end,
  set_back = function(key, words) if redis.call('GET', key) == words[2] then redis.call('DEL',
    key) end end,
  hash_back = function(key, words) if same_hash(key, words) then redis.call('DEL', key) end end,
  add_back = function(key, words)
    local score = redis.call('ZSCORE', key, words[3])
    if score and tonumber(score) == tonumber(words[2]) then redis.call('ZREM', key, words[3]) end
  end,
}
local lives = {set = true, hash = true, add = true}
for i, words in ipairs(operations) do
  writes[words[1]](KEYS[i + 1], words)
  if lives[words[1]] and words[2] ~= '0' then redis.call('PEXPIRE', KEYS[i + 1], words[2]) end
end
redis.call('HSET', KEYS[1], 'number', ARGV[2])
return {'written'}
"""


class RedisTarget(ExternalTarget):
    """The target of one owner of a shard. ``mark`` is the key of number and token."""

    def __init__(
        self, connect: Callable[[], Any], rows: RedisRows, owner: Owner, marks: str, where: str
    ) -> None:
        self._connect = connect
        self._rows = rows
        self._owner = owner
        self._mark = f"{marks}{owner.name}"
        self._where = where
        self._client: Any = None
        self._last = NOTHING_YET

    def fence(self) -> int:
        token, number = self._asked(_FENCE, [self._mark], [self._owner.token])
        self._owner.admits(Token(token))
        self._last = int(number)
        return self._last

    def write(self, number: int, records: Sequence[SinkRecord]) -> None:
        operations, refused = self._rows.operations(records)
        if refused:
            raise RowsRefusedError(refused)
        self._look_for_loss(number)
        keys = [self._mark, *(operation.key for operation in operations)]
        words = [
            word for operation in operations for word in (len(operation.words), *operation.words)
        ]
        answer = self._asked(_WRITE, keys, [self._owner.token, number, *words])
        self._judge(answer, operations)
        self._last = number

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _judge(self, answer: Sequence[Any], operations: Sequence[Operation]) -> None:
        match answer[0]:
            case "fenced":
                self._owner.admits(Token(int(answer[1])))
                raise UnavailableError(
                    f"the lease token in {self._mark} is an older one than ours, {answer[1]}"
                )
            case "forgotten":
                raise UnavailableError(
                    f"the key {self._mark} is gone, which notes what has been written"
                )
            case "refused":
                pairs = zip(answer[1::2], answer[2::2], strict=True)
                raise RowsRefusedError(
                    {
                        index: str(words)
                        for at, words in pairs
                        for index in operations[int(at)].indexes
                    }
                )

    def _look_for_loss(self, number: int) -> None:
        """Check for lost data: batches are numbered without gaps, so missing ones were written and
        then lost by the server."""
        if number <= self._last + 1:
            return
        _log.error(
            "%s has lost data: it holds the batches of %s up to %d, and those up to %d were"
            " written. Their rows are missing there; the next ones are written. Give the server a"
            " persistence that survives restarts (appendonly yes, appendfsync always) and no"
            " eviction (maxmemory-policy noeviction)",
            self._where,
            self._owner.name,
            self._last,
            number - 1,
        )

    def _asked(self, script: str, keys: Sequence[str], words: Sequence[Any]) -> Any:
        if self._client is None:
            self._client = self._connect()
        try:
            return answered(self._where, self._client.eval, script, len(keys), *keys, *words)
        except MillwheelError:
            self.close()
            raise


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
