"""The classes for Python of every built-in source, sink and lookup, generated from the declarations
of their options.

``python -m tests.kinds`` prints the module, ``python -m tests.kinds --write`` writes it. Type
checkers and editors need real classes, so the module is committed; a test says when it is out of
date.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import types
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import msgspec

from millwheel.connect.built_in import LOOKUPS, SINKS, SOURCES
from millwheel.connect.formats.options import FORMS, RegistryOptions
from millwheel.connect.options import Option, options_of
from millwheel.connect.sinks.files.open_files import RollOptions

FOLDER = Path(str(getattr(find_spec("millwheel.python.fluent"), "origin", ""))).parent
"""Found without an import: the modules need not be there yet."""
VALUES_HEAD = '''\
"""Values of options that have options themselves: ``format=CsvFormat(columns=["id", "amount"])``.

Generated from the declarations of the options: ``python -m tests.kinds --write``. An option that is
None has its default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

from millwheel.python.fluent.ends import DeclaredFormat, DeclaredOptions, Duration
'''
KINDS_HEAD = '''\
"""The sources of ``read``, the sinks of ``write`` and the lookups of ``look_up``, with all options
of a pipeline file.

Generated from the declarations of the options: ``python -m tests.kinds --write``. An option that is
None has its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from millwheel.python.fluent.ends import (
    DeclaredLookup,
    DeclaredSink,
    DeclaredSource,
    Duration,
    PathText,
)
from millwheel.python.fluent.option_values import (
    AvroFormat,
    CsvFormat,
    DebeziumFormat,
    FileRoll,
    ProtobufFormat,
    RawFormat,
    TextFormat,
)
'''
NAMES = {"files": "File"}
"""The first part of a class name where it is not the kind itself."""
INSIDE: Mapping[type[msgspec.Struct], str] = {
    RegistryOptions: "SchemaRegistry",
    RollOptions: "FileRoll",
}
"""The classes of maps of options that are no kinds."""
INJECTION = (
    "Records that are sent in from outside, by ``millwheel inject`` or over gRPC. Give the stream"
    " an ``id``."
)
"""What is said about the kind without options."""


class Argument(NamedTuple):
    """An option as an argument. ``given`` has its type without None."""

    name: str
    given: str
    required: bool
    default: str


def class_name(kind: str, role: str) -> str:
    """``KafkaSource`` for kafka and Source."""
    return NAMES.get(kind, kind.capitalize()) + role


class Declared(NamedTuple):
    """A class to be: its base, its kind ("" for a map that is not a kind), and the declaration of
    its options."""

    base: str
    kind: str
    form: type[msgspec.Struct] | None
    extra: str = ""


def kinds() -> dict[str, Declared]:
    """The classes of sources, sinks and lookups, by name."""
    roles = {"Source": SOURCES, "Sink": SINKS, "Lookup": LOOKUPS}
    return {
        class_name(kind, role): Declared(f"Declared{role}", kind, connector.form(), connector.extra)
        for role, known in roles.items()
        for kind, connector in known.items()
    }


def option_values() -> dict[str, Declared]:
    """The classes of formats and of other values with options, by name. Those that others have as
    values come first."""
    inside = {name: Declared("DeclaredOptions", "", form) for form, name in INSIDE.items()}
    formats = {
        class_name(kind, "Format"): Declared("DeclaredFormat", kind, form)
        for kind, form in sorted(FORMS.items())
        if form.__struct_fields__
    }
    return {**inside, **formats}


def arguments(form: type[msgspec.Struct]) -> list[Argument]:
    """Required ones first; then a format, which may be given by its position if it is next."""
    options = options_of(form)
    every = [
        Argument(
            each.name, python_type(each.type, options[each.name]), each.required, _default(each)
        )
        for each in msgspec.structs.fields(form)
    ]
    return sorted(every, key=lambda argument: not argument.required)


def python_type(declared: Any, option: Option) -> str:
    """The type of an argument, as text, without None."""
    if option.python:
        return option.python
    plain = get_args(declared)[0] if get_origin(declared) is Annotated else declared
    members = get_args(plain) if get_origin(plain) in (Union, types.UnionType) else (plain,)
    words = [_named(member) for member in members if member is not type(None)]
    if option.choices:
        literal = f"Literal[{', '.join(map(_quoted, option.choices))}]"
        words = [literal if word == "str" else word for word in words]
        formats = [class_name(each, "Format") for each in option.choices if each in option.forms]
        words[1:1] = sorted(name for name in formats if name in option_values())
    return " | ".join(words)


def _named(declared: Any) -> str:
    origin, inside = get_origin(declared), get_args(declared)
    if origin is dict:
        return f"Mapping[{', '.join(map(_named, inside))}]"
    if origin in (list, tuple):
        return f"Sequence[{' | '.join(_named(each) for each in inside if each is not ...)}]"
    if origin in (Union, types.UnionType):
        return " | ".join(map(_named, inside))
    if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        return f"{INSIDE[declared]} | Mapping[str, Any]"
    return "Any" if declared is Any else str(declared.__name__)


def _quoted(text: str) -> str:
    return f'"{text}"'


def _default(field: msgspec.structs.FieldInfo) -> str:
    """The default in Python; "" for none, and for an empty one."""
    value = field.default
    return "" if value is msgspec.NODEFAULT or value is None or value in ("", ()) else repr(value)


def source_of(name: str, declared: Declared) -> str:
    """The text of a class."""
    base, kind, form, _ = declared
    lines = [f"    _kind: ClassVar[str] = {_quoted(kind)}"] if kind else []
    every = [] if form is None else arguments(form)
    keywords = False
    for number, each in enumerate(every):
        by_position = each.required or (
            each.name == "format" and number > 0 and every[number - 1].required
        )
        if not by_position and not keywords:
            keywords = True
            lines.append("    _: KW_ONLY")
        lines.append(f"    {each.name}: {each.given}" + ("" if each.required else " | None = None"))
    return (
        f"@dataclass(frozen=True)\nclass {name}({base}):\n"
        f"{_docstring(_documentation(declared))}\n\n" + "\n".join(lines)
    )


def _documentation(declared: Declared) -> list[str]:
    """The lines of a class's docstring: what it is, and a sentence for each option."""
    if declared.form is None:
        return _wrapped(INJECTION, "")
    about = " ".join((declared.form.__doc__ or "").split())
    if declared.extra:
        about += f" Extra ``{declared.extra}``."
    options = options_of(declared.form)
    every = arguments(declared.form)
    lines = [line for each in every for line in _wrapped(*_sentence(each, options[each.name]))]
    return [*_wrapped(about, ""), "", *lines]


def _sentence(argument: Argument, option: Option) -> tuple[str, str]:
    text = re.sub(r"`+", "``", option.plain())
    default = re.sub(r"`+", "``", option.default or argument.default)
    return f"{argument.name}: {text}" + (f" (default: {default})" if default else ""), "    "


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, 93, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _docstring(lines: Sequence[str]) -> str:
    closed = [f'{lines[0]}"""'] if len(lines) == 1 else [*lines, '"""']
    return textwrap.indent('"""' + "\n".join(closed), "    ")


def modules() -> dict[Path, str]:
    """The whole modules, formatted."""
    return {
        FOLDER / "kinds.py": _module(KINDS_HEAD, kinds()),
        FOLDER / "option_values.py": _module(VALUES_HEAD, option_values()),
    }


def _module(head: str, classes: Mapping[str, Declared]) -> str:
    text = head + "".join(
        f"\n\n{source_of(name, declared)}\n" for name, declared in classes.items()
    )
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "-q",
        "--stdin-filename",
        str(FOLDER / "kinds.py"),
        "-",
    ]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    for path, text in modules().items():
        if "--write" in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        else:
            print(text, end="")
