"""Options of a source or a sink: checked once, into a frozen value, with errors that suggest a correction.

A form is a frozen ``msgspec.Struct``; its ``__post_init__`` raises ValueError for values that make no sense.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

_PATH = re.compile(r" - at `(?:key in )?\$\.?([A-Za-z0-9_]*).*`$")


def read_options(kind: str, given: Mapping[str, Any], form: type[T], examples: Mapping[str, str]) -> T:
    """``given`` as a ``form``. ``examples`` shows by option what a right one looks like.

    Raises ValueError with one sentence: which option, what is wrong with it, what to write instead.
    """
    known = [field.name for field in _fields(form)]
    for name in given:
        if name not in known:
            raise ValueError(f"{kind} has no option {name!r}{did_you_mean(str(name), known)}")
    for required in _fields(form):
        if required.required and given.get(required.name) is None:
            raise ValueError(f"{kind} needs the option {required.name!r}; write for example {examples[required.name]}")
    present = {name: value for name, value in given.items() if value is not None}
    try:
        return msgspec.convert(present, form, strict=False)
    except msgspec.ValidationError as ex:
        raise ValueError(_in_words(kind, str(ex), examples)) from None


@cache
def _fields(form: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """A shard that opens reads its options again; to look at the form's annotations takes a millisecond."""
    return msgspec.structs.fields(form)


def did_you_mean(given: str, known: Sequence[str]) -> str:
    """The end of a sentence about an unknown name: the closest known one, and all of them."""
    close = difflib.get_close_matches(given, known, n=1)
    return (f"; did you mean {close[0]!r}? It has " if close else "; it has ") + ", ".join(sorted(known))


def one_of(name: str, given: str, known: Sequence[str]) -> None:
    """ValueError unless ``given`` is one of ``known``."""
    if given not in known:
        close = difflib.get_close_matches(given, known, n=1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"option {name!r} is {given!r}{meant}; write one of {', '.join(known)}")


def _in_words(kind: str, problem: str, examples: Mapping[str, str]) -> str:
    path = _PATH.search(problem)
    text = _PATH.sub("", problem).replace("`", "")
    if path is None or not path.group(1):
        return f"{kind}: {text}"
    name = path.group(1)
    example = f"; write for example {examples[name]}" if name in examples else ""
    return f"{kind}: option {name!r}: {text[:1].lower()}{text[1:]}{example}"
