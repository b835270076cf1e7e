"""Triggers made of triggers, and the tree that describes them in YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millwheel.core.model.times import MAX_TIME, duration_us
from tests.search.reference.triggers import (
    AfterBytes,
    AfterCount,
    AfterProcessingTime,
    AfterShare,
    AfterWatermark,
    Custom,
    Default,
    Moment,
    Never,
    Trigger,
    lasting,
)


class Repeat(Trigger):
    """Again and again."""

    def __init__(self, inner: Trigger) -> None:
        self.inner = inner
        self.tells = inner.tells

    def fresh(self) -> Trigger:
        return Repeat(self.inner.fresh())

    def add(self, records: int, size: int, moment: Moment) -> None:
        self.inner.add(records, size, moment)

    def ready(self, moment: Moment) -> bool:
        return self.inner.ready(moment)

    def fire(self, moment: Moment) -> None:
        self.inner.fire(moment)
        if self.inner.finished:
            self.inner = self.inner.fresh()

    def merge(self, parts: Sequence[Any], moment: Moment) -> Trigger:
        return Repeat(lasting(self.inner, [part.inner for part in parts], moment))

    def wakes_at(self) -> int:
        return self.inner.wakes_at()


class Once(Repeat):
    """The first time only."""

    def fresh(self) -> Trigger:
        return Once(self.inner.fresh())

    def fire(self, moment: Moment) -> None:
        self.finished = True

    def merge(self, parts: Sequence[Any], moment: Moment) -> Trigger:
        inner = self.inner.merge([part.inner for part in parts], moment)
        merged = Once(inner)
        merged.finished = any(part.finished for part in parts) or inner.finished
        return merged


class Several(Trigger):
    """What combinations share."""

    def __init__(self, parts: list[Trigger]) -> None:
        self.parts = parts
        self.tells = any(part.tells for part in parts)

    def fresh(self) -> Trigger:
        return type(self)([part.fresh() for part in self.parts])

    def add(self, records: int, size: int, moment: Moment) -> None:
        for part in self.parts:
            if not part.finished:
                part.add(records, size, moment)

    def _ready(self, moment: Moment) -> list[Trigger]:
        return [part for part in self.parts if not part.finished and part.ready(moment)]

    def merge(self, parts: Sequence[Any], moment: Moment) -> Trigger:
        known = [part for part in parts if not part.finished]
        if not known:
            gone = self.fresh()
            gone.finished = True
            return gone
        columns = zip(*[each.parts for each in known], strict=True)
        merged = type(self)(
            [mine.merge(column, moment) for mine, column in zip(self.parts, columns, strict=True)]
        )
        merged.finished = merged.over()
        return merged

    def over(self) -> bool:
        """Whether it has finished, given its parts."""
        return any(part.finished for part in self.parts)

    def wakes_at(self) -> int:
        return min((part.wakes_at() for part in self.parts if not part.finished), default=MAX_TIME)


class AfterAny(Several):
    """When any is; finished when any has."""

    def ready(self, moment: Moment) -> bool:
        return bool(self._ready(moment))

    def fire(self, moment: Moment) -> None:
        for part in self._ready(moment):
            part.fire(moment)
        self.finished = self.over()


class AfterAll(Several):
    """When all are; finished when all have."""

    def ready(self, moment: Moment) -> bool:
        return all(part.finished or part.ready(moment) for part in self.parts)

    def fire(self, moment: Moment) -> None:
        for part in self._ready(moment):
            part.fire(moment)
        self.finished = self.over()

    def over(self) -> bool:
        return all(part.finished for part in self.parts)


class OrFinally(Several):
    """As the first, until the second is ready."""

    def ready(self, moment: Moment) -> bool:
        return bool(self._ready(moment))

    def fire(self, moment: Moment) -> None:
        main, until = self.parts
        (until if until.ready(moment) else main).fire(moment)
        self.finished = self.over()


class AfterEach(Several):
    """One after the other."""

    @property
    def _current(self) -> Trigger:
        return next(part for part in self.parts if not part.finished)

    def add(self, records: int, size: int, moment: Moment) -> None:
        self._current.add(records, size, moment)

    def ready(self, moment: Moment) -> bool:
        return self._current.ready(moment)

    def fire(self, moment: Moment) -> None:
        self._current.fire(moment)
        self.finished = self.over()

    def over(self) -> bool:
        return all(part.finished for part in self.parts)

    def merge(self, parts: Sequence[Any], moment: Moment) -> Trigger:
        """What lies behind the first that has not finished has not begun."""
        merged = AfterEach([part.fresh() for part in self.parts])
        known = [part for part in parts if not part.finished]
        for index, mine in enumerate(self.parts):
            begun = [each for each in known if all(part.finished for part in each.parts[:index])]
            if begun:
                merged.parts[index] = mine.merge([each.parts[index] for each in begun], moment)
            if not merged.parts[index].finished:
                break
        merged.finished = merged.over() if known else True
        return merged

    def wakes_at(self) -> int:
        return self._current.wakes_at() if not self.finished else MAX_TIME


def trigger_of(tree: Any, load: Callable[[str], Any]) -> Trigger:
    """The trigger that a tree in a spec describes, before it has seen anything."""
    if tree is None:
        return Default()
    given: Any
    name, given = (tree, None) if isinstance(tree, str) else next(iter(tree.items()))

    def inner(part: Any) -> Trigger:
        return trigger_of(part, load)

    if name in ("any", "all", "each"):
        return {"any": AfterAny, "all": AfterAll, "each": AfterEach}[name](
            [inner(part) for part in given]
        )
    if name == "or_finally":
        return OrFinally([inner(given["main"]), inner(given["until"])])
    if name in ("repeat", "once"):
        return (Repeat if name == "repeat" else Once)(inner(given))
    if name == "every":
        return Repeat(AfterProcessingTime(0, duration_us(given)))
    if name == "after_watermark":
        parts = {side: inner(part) for side, part in (given or {}).items() if part is not None}
        return AfterWatermark(parts.get("early"), parts.get("late"))
    if name == "after_processing_time":
        settings = given if isinstance(given, Mapping) else {"delay": given or 0}
        return AfterProcessingTime(
            duration_us(settings.get("delay", 0)), duration_us(settings.get("align", 0))
        )
    if name == "custom":
        return Custom(
            load(given)()
            if isinstance(given, str)
            else load(given["class"])(**(given.get("with") or {}))
        )
    simple: dict[str, Callable[[], Trigger]] = {
        "default": Default,
        "never": Never,
        "after_count": lambda: AfterCount(given),
        "after_bytes": lambda: AfterBytes(given),
        "after_percentile_watermark": lambda: AfterShare(given),
    }
    return simple[name]()
