"""What can be determined of the streams of a pipeline, and in which runs: the words that
:mod:`.freedoms` uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from millwheel.core.pipeline.keys import KeySpec


class Level(IntEnum):
    """How much of a stream is determined."""

    NOTHING = 0
    STANDING = 1
    """What stands in the end: the rows that were not taken back or replaced."""
    ALL = 2
    """Every row."""


class Order(IntEnum):
    """Which rows of a stream have an order."""

    NONE = 0
    KEY = 1
    """Those of one key of their producer."""
    WHOLE = 2
    """All, whatever the key: what is pushed."""


class Placed(IntEnum):
    """How records come among the event-time timers of a callback (guarantees.md, Order)."""

    BY_ARRIVAL = 0
    BY_SENDER = 1
    """Those of one key of their producer in one order with them."""
    BY_POSITION = 2
    """In the order of the only partition that they come from."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is determined of a stream. ``keyed``: by what its producer keyed it. ``paced``: its rows
    come only while the watermark stands still. ``timely``: rows that come while the watermark moves
    are not behind it. ``single``: one record at a time stays one at a time on the way here.
    ``retracts``: it takes rows back."""

    level: Level = Level.ALL
    order: Order = Order.WHOLE
    keyed: KeySpec | None = None
    paced: bool = True
    timely: bool = True
    single: bool = True
    timed: bool = True
    """Its rows have the same timestamps, too."""
    retracts: bool = False
    placed: Placed = Placed.BY_ARRIVAL
    doubled: bool = False
    """After a crash some rows may come twice (weak productions of an at-least-once computation)."""
    behind: bool = False
    """Some of its rows may lie behind a watermark that silence, or the other partitions of their
    source, have moved."""


@dataclass(frozen=True, slots=True)
class Free:
    """What differs between the runs that are compared: how records are bundled, whether work is
    lost and done again, whether partitions race each other (as they do in the simulator)."""

    bundling: bool = True
    crashing: bool = False
    racing: frozenset[str] | None = None
    """Streams race each other, and the wall clock is another one; named are those with several
    partitions."""
    uneven: frozenset[str] = frozenset()
    """Streams whose watermark may stand elsewhere when a record comes: see
    :func:`.freedoms.promised`."""
    several: frozenset[str] = frozenset()
    """Streams with several partitions."""
    overtaken: frozenset[str] = frozenset()
    """Streams with records that come when silence, or their other partitions, may have moved the
    watermark beyond them."""
    forgetful: frozenset[str] = frozenset()
    """Streams with a copy that comes after its id was forgotten, or nearly so; and of weak
    productions whose ids are."""
    ended: bool = True
    """The input ends, so that all windows emit what they have."""
    deaf: bool = False
    """The watermark service dies with the workers. guarantees.md, Event time: "If the service has
    died too, a record behind a watermark that no commit has seen may count as on time"."""


NOTHING = Facts(Level.NOTHING, Order.NONE, paced=False, timely=False, single=False)


@dataclass(frozen=True, slots=True)
class Made:
    """What a computation makes of its outputs, and of its side output."""

    facts: Facts
    sides: Mapping[str, Facts] = field(default_factory=dict)
