"""Third parties' sources, sinks and lookups: the kinds that installed packages register, and the
adaptation of their objects.

An object that has the methods of a contract without being derived from its base class is wrapped
once, where it enters the system, so that the runtime never asks what an object can do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

from millwheel.connect.options import did_you_mean
from millwheel.connect.sinks.base import Sink, SinkBatch, Writer
from millwheel.connect.sources.base import Chunk, Partition, Reader, Source
from millwheel.errors import SetupError


def names_in(group: str) -> set[str]:
    """The kinds that installed packages add to a group of entry points."""
    return {point.name for point in entry_points(group=group)}


def made_by(group: str, what: str, kind: str, kinds: Callable[[], list[str]], *words: Any) -> Any:
    """The object that the factory of an installed package makes of ``words``. ``what`` is a
    "source", "sink" or "lookup".

    Raises ValueError for a ``kind`` that no package has registered, suggesting one of ``kinds``
    that is alike, and SetupError for a package that cannot be loaded."""
    for point in entry_points(group=group, name=kind):
        try:
            factory = point.load()
        except Exception as ex:  # a broken package may raise anything when it is imported
            reason = f"{type(ex).__name__}: {ex}"
            raise SetupError(
                f"the {what} {kind!r} ({point.value}) cannot be loaded: {reason}"
            ) from ex
        return factory(*words)
    raise ValueError(f"there is no {what} {kind!r}{did_you_mean(kind, kinds())}")


def require(instance: object, contract: type, *more: str) -> None:
    """Raises SetupError, naming class, members and fix, unless ``instance`` has the members that
    the contract requires: its abstract methods, and ``more``."""
    needed: set[str] = set(contract.__abstractmethods__) | set(more)  # type: ignore[attr-defined]  # it is an ABC
    if missing := sorted(name for name in needed if not hasattr(instance, name)):
        kind = f"{type(instance).__module__}.{type(instance).__qualname__}"
        raise SetupError(
            f"{kind} has no {' and no '.join(missing)}, which each {contract.__name__} needs;"
            f" derive the class from millwheel.plugins.{contract.__name__}, whose docstrings say"
            " what is called and when"
        )


def take_over(wrapper: object, instance: object, *names: str) -> None:
    """Give a wrapper those of the optional members that ``instance`` has; the others keep the
    defaults of the contract."""
    for name in names:
        if hasattr(instance, name):
            setattr(wrapper, name, getattr(instance, name))


_WRITER_OPTIONS = (
    "takes_columns",
    "publishes_aside",
    "prepares_aside",
    "publishes_in_order",
    "lane",
    "take_refused",
    "close",
)
_SINK_OPTIONS = (
    "flush_us",
    "cut_records",
    "takes_retractions",
    "replaces_rows",
    "keeps_latest",
    "shows_at_once",
    "adopt",
)


def as_sink(instance: Any) -> Sink:
    """``instance`` itself if it is a Sink, else wrapped. SetupError when a necessary member is
    missing."""
    if isinstance(instance, Sink):
        return instance
    require(instance, Sink)
    return _AdaptedSink(instance)


def as_writer(instance: Any) -> Writer:
    """``instance`` itself if it is a Writer, else wrapped. SetupError when a necessary member is
    missing."""
    if isinstance(instance, Writer):
        return instance
    require(instance, Writer)
    return _AdaptedWriter(instance)


class _AdaptedSink(Sink):
    def __init__(self, instance: Any) -> None:
        self._made = instance
        take_over(self, instance, *_SINK_OPTIONS)

    def check(self, identity: str) -> None:
        self._made.check(identity)

    def open(self, shard: str, token: int) -> Writer:
        return as_writer(self._made.open(shard, token))


class _AdaptedWriter(Writer):
    def __init__(self, instance: Any) -> None:
        self._made = instance
        take_over(self, instance, *_WRITER_OPTIONS)

    def prepare(self, batch: SinkBatch) -> bytes:
        committable: bytes = self._made.prepare(batch)
        return committable

    def publish(self, committable: bytes) -> None:
        self._made.publish(committable)

    def sweep(self, committables: list[bytes]) -> None:
        self._made.sweep(committables)


def as_source(instance: Any) -> Source:
    """``instance`` itself if it is a Source, else wrapped. Raises SetupError when a required member
    is missing."""
    if isinstance(instance, Source):
        return instance
    require(instance, Source, "bounded")
    return _AdaptedSource(instance)


def as_reader(instance: Any) -> Reader:
    """``instance`` itself if it is a Reader, else wrapped. Raises SetupError when a required member
    is missing."""
    if isinstance(instance, Reader):
        return instance
    require(instance, Reader)
    return _AdaptedReader(instance)


class _AdaptedSource(Source):
    def __init__(self, instance: Any) -> None:
        self._made = instance
        take_over(self, instance, "poll_us", "list_us", "warm_up", "committed", "ends")

    @property
    def bounded(self) -> bool:  # type: ignore[override]  # it may change: a source may become bounded
        return bool(self._made.bounded)

    def partitions(self) -> Sequence[Partition]:
        partitions: Sequence[Partition] = self._made.partitions()
        return partitions

    def open(self, partition: Partition) -> Reader:
        return as_reader(self._made.open(partition))


class _AdaptedReader(Reader):
    def __init__(self, instance: Any) -> None:
        self._made = instance
        take_over(
            self,
            instance,
            "resume",
            "read_frame",
            "skip",
            "stop_at",
            "reached",
            "tell_traces",
            "close",
        )

    def read(self, position: int, max_records: int) -> Chunk:
        read: Chunk = self._made.read(position, max_records)
        return read
