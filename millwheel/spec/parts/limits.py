"""The ``limits:`` part: limits of records, keys and state, and of the duration of a callback."""

from __future__ import annotations

from millwheel.core.model.limits import DEFAULTS, Limits, size_bytes, size_text
from millwheel.core.model.times import SECOND
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.reader import NodeReader

FIELDS = (
    "record",
    "key",
    "state",
    "timers_per_key",
    "timers_after_end",
    "in_flight",
    "callback_timeout",
    "callback_hangs",
)
_EXAMPLE = "{record: 1MB, callback_timeout: 2m}"


def read_limits(reader: NodeReader, node: YamlNode | None) -> Limits:
    """The limits of the file, with defaults for the others."""
    if node is None:
        return DEFAULTS
    fields = reader.fields(node, FIELDS, _EXAMPLE)
    return Limits(
        record=_size(reader, fields.get("record"), DEFAULTS.record, 1 << 10, 32 << 20),
        key=_size(reader, fields.get("key"), DEFAULTS.key, 64, 1 << 20),
        state=_size(reader, fields.get("state"), DEFAULTS.state, 1 << 10, 256 << 20),
        timers=reader.number(fields.get("timers_per_key"), DEFAULTS.timers, 1, 10_000_000) or DEFAULTS.timers,
        chain=reader.number(fields.get("timers_after_end"), DEFAULTS.chain, 1, 1_000_000_000) or DEFAULTS.chain,
        in_flight=_size(reader, fields.get("in_flight"), DEFAULTS.in_flight, 1 << 20, 64 << 30),
        callback_us=_timeout(reader, fields.get("callback_timeout")),
        hangs=reader.number(fields.get("callback_hangs"), DEFAULTS.hangs, 1, 100) or DEFAULTS.hangs,
    )


def _timeout(reader: NodeReader, node: YamlNode | None) -> int | None:
    """A duration that is long enough for a busy machine, or None for ``never``."""
    if node is None:
        return DEFAULTS.callback_us
    return None if node.text == "never" else reader.duration(node, DEFAULTS.callback_us or 0, least=2 * SECOND)


def _size(reader: NodeReader, node: YamlNode | None, default: int, least: int, most: int) -> int:
    """A size within bounds. A number without a unit is refused, because it would be ambiguous."""
    if node is None:
        return default

    def read() -> int:
        if not isinstance(node.value, str):
            raise ValueError(f"must be a size, not {node.kind()}; write a number and a unit, such as 64kB or 16MiB")
        found = size_bytes(node.value)
        if not least <= found <= most:
            raise ValueError(f"{node.value!r} must lie between {size_text(least)} and {size_text(most)}")
        return found

    return reader.attempt(node, read) or default
