"""The classes for user code: computations and their typed, per-key state.

    class Spikes(Computation):
        stats = ValueState(Stats, default=Stats)

        def process_record(self, ctx, record):
            stats = self.stats.get()
            ...
            self.stats.set(stats)
            ctx.produce("alerts", {"path": ctx.key}, timestamp=record.timestamp)

A state handle always refers to the key being processed. Calls for one key are serial, in order, on
one thread; one instance of the class serves one shard, so plain attributes are scratch space that
may vanish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload

from millwheel.core.model.records import Domain, Record, Timer
from millwheel.core.model.times import duration_us
from millwheel.core.windows.panes import Pane
from millwheel.core.windows.windows import Window

__all__ = ["Computation", "Context", "ListState", "MapState", "State", "ValueState"]

T = TypeVar("T")
K = TypeVar("K")


class Context(Protocol):
    """The interface of a callback to the runtime. Valid only during the call it was passed to."""

    key: Any
    """The key being processed."""
    watermark: int
    """The low watermark of this computation's inputs, µs: no record before it will come."""
    now: int
    """The worker's wall clock, µs; not replayed after a crash."""
    pane: Pane | None
    """In ``process_window``: the pane that the window emits, with ``timing``, ``index``,
    ``is_last``; else None."""

    def produce(
        self, stream: str, value: Any, timestamp: int | None = None, key: Any = None
    ) -> None:
        """Emit ``value`` to ``stream``. ``timestamp`` (µs) defaults to the record's or timer's and
        may not lie before it; ``key`` (default: the current key) serves consumers that declare no
        key of their own. In ``process_batch`` there is no default timestamp, and none may lie
        before the earliest of the records."""

    def set_timer(self, tag: str, at: int, domain: Domain = Domain.EVENT) -> None:
        """Call ``process_timer`` once the watermark (or the wall clock) has passed ``at`` (µs).
        Replaces the timer with the same tag of this key and domain. Those of one time fire in the
        order of their tags."""

    def cancel_timer(self, tag: str, domain: Domain = Domain.EVENT) -> None:
        """Remove a timer; without such a timer nothing happens."""

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of this computation. It is part of the commit, so it is exact across
        crashes. The summary of a run shows it under the computation."""


class Computation:
    """A node of the graph in user code. Options from YAML arrive as keyword arguments."""

    takes_retractions = False
    """``process_record`` undoes records that take back earlier ones
    (:func:`millwheel.as_retraction`). Without it such a stream is refused as input."""

    def process_record(self, ctx: Context, record: Record) -> None:
        """Process one record of one key."""
        raise TypeError(
            f"{type(self).__name__} has an input but no process_record(self, ctx, record) method"
        )

    def process_batch(self, ctx: Context, records: Sequence[Record]) -> None:
        """Process some records of one key, in their order. If a class has this method, it is called
        in place of ``process_record``.

        How many records come together is not defined: one, or all of a bundle. So the results must
        be those of the same records one by one. ``ctx.produce`` needs a timestamp here, which is
        usually that of the record it is about.
        """
        raise TypeError(f"{type(self).__name__} has no process_batch(self, ctx, records) method")

    def process_window(
        self, ctx: Context, key: Any, window: Window, records: Sequence[Record]
    ) -> None:
        """Process a window of one key that fires, in a computation with ``window``. Called in place
        of ``process_record``.

        ``records`` are the ones since it last fired (``accumulation: discarding``) or all so far
        (``accumulating``), in order of arrival; none when the window fires only because it is
        complete. Productions have the timestamp of the pane unless they are given another.
        """
        raise TypeError(
            f"{type(self).__name__} has a window but no process_window(self, ctx, key, window,"
            " records)"
        )

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        """Process a timer of one key that has come due."""
        raise TypeError(
            f"{type(self).__name__} sets timers but has no process_timer(self, ctx, timer) method"
        )


def sets_timers(kind: Any) -> bool:
    """Whether timers may call a class of computations: not if it has the ``process_timer`` of the
    base class."""
    derived = isinstance(kind, type) and issubclass(kind, Computation)
    return not derived or kind.process_timer is not Computation.process_timer


def takes_batches(kind: type[Computation]) -> bool:
    """Whether a class of computations takes several records in a call."""
    return kind.process_batch is not Computation.process_batch


class State:
    """Base of the declarations. ``ttl`` (duration or µs): an entry is absent for records and timers
    whose time is later by ``ttl`` than that of any that wrote it; the watermark removes it."""

    name: str

    def __init__(self, type: Any = Any, *, ttl: str | int | None = None) -> None:
        self.type = type
        self.ttl_us = None if ttl is None else duration_us(ttl)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


class ValueState(State, Generic[T]):
    """One value per key.

    ``type`` is anything msgspec can encode: a Struct (fields may be added later, with defaults),
    int, str, dict[str, float], … ``default`` is a value or a factory called for keys without one
    (None otherwise). A value returned by ``get`` may be changed in place and is saved with the
    commit; ``set`` replaces it.
    """

    @overload
    def __init__(
        self,
        type: type[T],
        default: Callable[[], T] | T | None = None,
        *,
        ttl: str | int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueState[Any], type: Any = Any, default: Any = None, *, ttl: str | int | None = None
    ) -> None: ...
    def __init__(
        self, type: Any = Any, default: Any = None, *, ttl: str | int | None = None
    ) -> None:
        super().__init__(type, ttl=ttl)
        self.default = default

    @overload
    def __get__(self, instance: None, owner: type) -> ValueState[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> ValueHandle[T]: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else _unbound(self)


class ListState(State, Generic[T]):
    """A list per key that grows at the end; appending costs one write at any length."""

    @overload
    def __init__(self, type: type[T], *, ttl: str | int | None = None) -> None: ...
    @overload
    def __init__(
        self: ListState[Any], type: Any = Any, *, ttl: str | int | None = None
    ) -> None: ...
    def __init__(self, type: Any = Any, *, ttl: str | int | None = None) -> None:
        super().__init__(type, ttl=ttl)

    @overload
    def __get__(self, instance: None, owner: type) -> ListState[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> ListHandle[T]: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else _unbound(self)


class MapState(State, Generic[K, T]):
    """A map per key, each entry stored by itself. Map keys are str, int, bytes or tuples of them.

    ``MapState(str, int)`` names the types of keys and values, ``MapState(int)`` that of values
    alone."""

    @overload
    def __init__(
        self, types: type[K], type: type[T], /, *, ttl: str | int | None = None
    ) -> None: ...
    @overload
    def __init__(
        self: MapState[Any, T], types: type[T], /, *, ttl: str | int | None = None
    ) -> None: ...
    @overload
    def __init__(
        self: MapState[Any, T], *, type: type[T], ttl: str | int | None = None
    ) -> None: ...
    @overload
    def __init__(self: MapState[Any, Any], *, ttl: str | int | None = None) -> None: ...
    def __init__(self, *types: Any, type: Any = Any, ttl: str | int | None = None) -> None:
        if len(types) > 2:
            raise TypeError(f"MapState takes the types of keys and values, not {len(types)} types")
        super().__init__(types[-1] if types else type, ttl=ttl)
        self.keys: Any = types[0] if len(types) == 2 else Any

    @overload
    def __get__(self, instance: None, owner: type) -> MapState[K, T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> MapHandle[K, T]: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else _unbound(self)


def _unbound(state: State) -> Any:
    raise AttributeError(
        f"state {state.name!r} can only be used while a record or timer is processed; "
        "use millwheel.testing to call a computation from a test"
    )


class ValueHandle(Protocol[T]):
    """The type of ``self.<value state>`` inside a callback."""

    def get(self) -> T: ...
    def set(self, value: T) -> None: ...
    def clear(self) -> None: ...


class ListHandle(Protocol[T]):
    """The type of ``self.<list state>`` inside a callback."""

    def append(self, item: T) -> None: ...
    def __iter__(self) -> Iterator[T]: ...
    def __len__(self) -> int: ...
    def clear(self) -> None: ...


class MapHandle(Protocol[K, T]):
    """The type of ``self.<map state>`` inside a callback."""

    def get(self, key: K, default: T | None = None) -> T | None: ...
    def __getitem__(self, key: K) -> T: ...
    def __setitem__(self, key: K, value: T) -> None: ...
    def __delitem__(self, key: K) -> None: ...
    def __contains__(self, key: K) -> bool: ...
    def items(self) -> Iterator[tuple[K, T]]: ...
    def clear(self) -> None: ...
