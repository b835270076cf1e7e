"""The options of a source, a sink, a lookup or a format: declared once, read into a frozen value,
with errors that suggest a correction.

A kind declares its options as the fields of a form, a frozen ``msgspec.Struct``. Their names,
types, defaults, examples and choices stand there and nowhere else: the reader of pipeline files,
the JSON Schema and the classes for Python follow from them. The form's ``__post_init__`` raises
ValueError, with a sentence, for values that make no sense.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

import msgspec


@dataclass(frozen=True, slots=True)
class Option:
    """The part of an option's declaration that stands in ``Annotated``, beside its type.

    ``example`` is a valid value, as YAML. ``choices`` are all texts that it may be, if there are a
    few of them; ``refused`` has a sentence for another that one may expect. ``python`` is the type
    of the argument in Python, where that is wider than a file allows. ``forms`` are the options of
    choices that may be a map, of one choice and its options, as well as a text.

    ``text`` is one sentence about the option, as Markdown of a page below docs/; the tables there,
    the classes for Python and the JSON Schema show it. ``default`` are words for the default, where
    its value does not explain itself.
    """

    example: str
    choices: tuple[str, ...] = ()
    python: str = ""
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)
    forms: Mapping[str, type[msgspec.Struct]] = field(default_factory=dict, hash=False)
    text: str = ""
    default: str = ""

    def plain(self) -> str:
        """The sentence without links."""
        return plain(self.text)


def plain(text: str) -> str:
    """A sentence of Markdown without its links."""
    return _LINK.sub(r"\1", text)


T = TypeVar("T", bound=msgspec.Struct)

_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_PATH = re.compile(r" - at `(?:key in )?\$\.?([A-Za-z0-9_]*).*`$")


def read_options(kind: str, options: Mapping[str, Any], form: type[T]) -> T:
    """``options`` as a ``form``.

    Raises ValueError with one sentence: the option, the fault in it, and the remedy.
    """
    names = [field.name for field in _fields(form)]
    for name in options:
        if name not in names:
            raise ValueError(f"{kind} has no option {name!r}{did_you_mean(str(name), names)}")
    for required in _fields(form):
        if required.required and options.get(required.name) is None:
            raise ValueError(
                f"{kind} needs the option {required.name!r}{_for_example(form, required.name)}"
            )
    present = {name: value for name, value in options.items() if value is not None}
    try:
        _check_choices(form, present)
    except ValueError as ex:
        raise ValueError(f"{kind}: {ex}") from None
    try:
        return msgspec.convert(present, form, strict=False)
    except msgspec.ValidationError as ex:
        raise ValueError(_in_words(kind, str(ex), form)) from None


@cache
def _fields(form: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Cached, because a shard that opens reads its options again, and looking at the annotations of
    a form takes a millisecond."""
    return msgspec.structs.fields(form)


@cache
def options_of(form: type[msgspec.Struct]) -> Mapping[str, Option]:
    """The declarations of the fields of a form, by name."""
    return {field.name: _declared(field.type) for field in _fields(form)}


def _declared(annotation: Any) -> Option:
    words = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((word for word in words if isinstance(word, Option)), Option(""))


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """The end of a sentence about an unknown name: the closest known one, and all of them."""
    close = difflib.get_close_matches(name, names, n=1)
    return (f"; did you mean {close[0]!r}? It has " if close else "; it has ") + ", ".join(
        sorted(names)
    )


def one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """ValueError unless ``value`` is one of ``choices``."""
    if value not in choices:
        close = difflib.get_close_matches(value, choices, n=1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"option {name!r} is {value!r}{meant}; write one of {', '.join(choices)}")


def _check_choices(form: type[msgspec.Struct], values: Mapping[str, Any]) -> None:
    for name, option in options_of(form).items():
        if option.choices and isinstance(word := values.get(name), str):
            if word in option.refused:
                raise ValueError(f"option {name!r}: {option.refused[word]}")
            one_of(name, word, option.choices)


def _in_words(kind: str, problem: str, form: type[msgspec.Struct]) -> str:
    path = _PATH.search(problem)
    text = _PATH.sub("", problem).replace("`", "")
    if path is None or not path.group(1):
        return f"{kind}: {text}"
    name = path.group(1)
    return f"{kind}: option {name!r}: {text[:1].lower()}{text[1:]}{_for_example(form, name)}"


def _for_example(form: type[msgspec.Struct], name: str) -> str:
    option = options_of(form).get(name)
    return (
        f"; write for example {name}: {option.example}"
        if option is not None and option.example
        else ""
    )


WithKey: TypeAlias = Annotated[
    bool, Option("true", text="`true`: add the record's key as the field `key`")
]
WithTimestamp: TypeAlias = Annotated[
    bool, Option("true", text="`true`: add the record's timestamp (µs) as the field `timestamp`")
]
Mark: TypeAlias = Annotated[
    str, Option("change", text="`changelog`: the name of the field that contains `+` or `-`")
]
Flush: TypeAlias = Annotated[
    str | int,
    Option("100ms", python="Duration", text="how long a row waits for others of its batch"),
]
StoreConfig: TypeAlias = Annotated[
    dict[str, Any],
    Option(
        '{endpoint: "http://127.0.0.1:9000", region: us-east-1}',
        text=(
            "for `path: s3://…`, `gs://…`, `az://…`: settings of the client of the"
            " [object store](objects.md)"
        ),
    ),
]
Brokers: TypeAlias = Annotated[
    str, Option('"127.0.0.1:9092"', text="`host:port`, several with commas")
]
