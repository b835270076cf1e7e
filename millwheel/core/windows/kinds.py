"""The kinds of windows that have a word in a file, one row each.

The reader of ``window:`` with its messages, the JSON Schema, the windows of a stored spec, and the
file made of a pipeline written in Python follow from these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from millwheel.core.model.times import duration_text
from millwheel.core.windows.windows import (
    Count,
    Cumulative,
    Global,
    OfInput,
    Sessions,
    Sliding,
    Tumbling,
    WindowFunction,
)


class OptionForm(Enum):
    """How an option is written."""

    DURATION = auto()
    NUMBER = auto()
    TIME_ZONE = auto()
    FIELD = auto()
    EMIT = auto()
    """One of two words: ``all``, which is false, or the attribute itself."""


@dataclass(frozen=True, slots=True)
class WindowOption:
    """An option of a kind of windows: its ``word`` in the file, the ``attribute`` of a window that
    it sets, its least value (a number also has a most), one sentence, and its text where a file
    leaves it out."""

    word: str
    attribute: str
    form: OptionForm
    least: int = 0
    required: bool = False
    most: int = 2**31
    text: str = ""
    default: str = ""

    @property
    def setting(self) -> str:
        """Its name in a spec."""
        return self.attribute + "_us" if self.form is OptionForm.DURATION else self.attribute

    def written(self, window: Any) -> Any:
        """The value in a file; None where it is left out."""
        value = getattr(window, self.attribute)
        if not value or value == self.default:
            return None
        if self.form is OptionForm.EMIT:
            return self.attribute
        return duration_text(value) if self.form is OptionForm.DURATION else value


@dataclass(frozen=True, slots=True)
class WindowKind:
    """A kind of windows. ``size`` is the option that is written with the word of the kind (None:
    there is none). ``behind`` is then what stands behind the word ("": ``true``, or nothing), and
    ``text`` one sentence."""

    word: str
    make: Callable[..., WindowFunction]
    size: WindowOption | None = None
    more: tuple[WindowOption, ...] = ()
    behind: str = ""
    text: str = ""

    @property
    def options(self) -> tuple[WindowOption, ...]:
        """All options, in the order in which they are written."""
        return self.more if self.size is None else (self.size, *self.more)


_EVERY = WindowOption(
    "every", "every", OptionForm.DURATION, 1, required=True, text="the time between two outputs"
)
_OFFSET = WindowOption(
    "offset", "offset", OptionForm.DURATION, text="by how much windows begin later than the epoch"
)
_TIME_ZONE = WindowOption(
    "time_zone", "time_zone", OptionForm.TIME_ZONE, text="the clock that days follow"
)
_CHANGES = WindowOption(
    "emit", "changes", OptionForm.EMIT, text="all results, or only those that change"
)
_EMPTY = WindowOption(
    "emit",
    "empty",
    OptionForm.EMIT,
    text="empty: a key that falls silent emits one empty result",
)


def _sized(
    word: str, make: Callable[..., WindowFunction], attribute: str, text: str, *more: WindowOption
) -> WindowKind:
    size = WindowOption(word, attribute, OptionForm.DURATION, 1, True, text=text)
    return WindowKind(word, make, size, more)


_ROWS = (
    _sized("tumbling", Tumbling, "size", "one after the other", _OFFSET, _TIME_ZONE, _EMPTY),
    _sized("sliding", Sliding, "size", "overlapping", _EVERY, _OFFSET, _CHANGES),
    _sized("session", Sessions, "gap", "as long as records come closer than this"),
    WindowKind("global", Global, text="one window for all of time"),
    WindowKind(
        "count",
        Count,
        WindowOption(
            "count", "count", OptionForm.NUMBER, 1, True, text="so many records of a key in a row"
        ),
    ),
    _sized(
        "cumulative",
        Cumulative,
        "size",
        "from the beginning of this span so far",
        _EVERY,
        _OFFSET,
        _TIME_ZONE,
        _CHANGES,
    ),
    WindowKind(
        "of",
        OfInput,
        more=(
            WindowOption(
                "start",
                "start",
                OptionForm.FIELD,
                text="the field with the start of the window",
                default="window_start",
            ),
            WindowOption(
                "end",
                "end",
                OptionForm.FIELD,
                text="the field with the end of the window",
                default="window_end",
            ),
        ),
        behind="input",
        text="the windows that the records are results of",
    ),
)
WINDOW_KINDS: Mapping[str, WindowKind] = {kind.word: kind for kind in _ROWS}


def window_tree(window: Any) -> Any:
    """The value of ``window:`` for a window; None for one of the user's own code."""
    for kind in _ROWS:
        if type(window) is kind.make:
            written = {option.word: option.written(window) for option in kind.options}
            settings = {word: value for word, value in written.items() if value is not None}
            return {kind.word: kind.behind, **settings} if kind.behind else settings or kind.word
    return None
