"""The tables of options in docs/, generated from the declarations: what stands between the markers
``<!-- options: NAMES -->`` and ``<!-- end of options -->``. NAMES are structs of options, such as
KafkaSourceOptions, of which several share a table, or one of the PARTS of the file.

python -m tests.option_tables           # print them
python -m tests.option_tables --write   # write them into the pages
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from millwheel.connect.options import Option, options_of
from millwheel.core.model.times import duration_text
from millwheel.language.spec.key_notation import KEY
from millwheel.language.spec.parts.computation_fields import (
    CALLBACK,
    COMPUTATION,
    DIALS,
    ENDS,
    FIRING,
    OF_GROUPS,
    OTHER_FORMS,
    WINDOWED,
)
from millwheel.language.spec.parts.joins import ENRICH, JOIN
from millwheel.language.spec.parts.rows import OVER
from millwheel.language.spec.parts.streams import STREAM, TIME_FIELD, WATERMARK
from millwheel.language.spec.parts.tables import TABLE_PART
from millwheel.language.spec.reading.parts import Choice, Duration, Field, FilePart
from tests import kinds


def _without(fields: Mapping[str, Field], name: str) -> dict[str, Field]:
    return {each: field for each, field in fields.items() if each != name}


PARTS: Mapping[str, FilePart] = {
    "STREAM": STREAM,
    "TIME": TIME_FIELD,
    "TABLE": TABLE_PART,
    "KEY": KEY,
    "WATERMARK": WATERMARK,
    "ALL": FilePart("", {**ENDS, **_without(DIALS.fields, "skew")}, DIALS.defaults),
    "CALLBACK": FilePart("", {**CALLBACK, "order_by": COMPUTATION.fields["order_by"]}),
    "WINDOWED": FilePart(
        "", {**WINDOWED, **OF_GROUPS, "skew": DIALS.fields["skew"]}, FIRING.defaults
    ),
    "OTHERS": FilePart("", OTHER_FORMS),
    "ENRICH": ENRICH,
    "JOIN": JOIN,
    "OVER": OVER,
}
DOCS = Path(__file__).parents[1] / "docs"
_HEAD = "| option | default | meaning |\n|---|---|---|\n"
_TABLE = re.compile(r"(<!-- options: ([\w ]+) -->\n).*?(<!-- end of options -->)", re.DOTALL)


class Row(NamedTuple):
    """An option as a table has it."""

    name: str
    default: str
    meaning: str


def with_tables(page: str, name: str) -> str:
    """A page with its tables as the declarations make them. Links to itself are short."""
    own = f"({name}#"
    return _TABLE.sub(
        lambda found: found[1] + _written(found[2].split()).replace(own, "(#") + found[3], page
    )


def _written(names: list[str]) -> str:
    if names[0] in PARTS:
        return fields_table(PARTS[names[0]])
    return table(names)


def fields_table(part: FilePart) -> str:
    """The table of a part of the file."""
    rows = (
        f"| `{name}` | {_of_field(each, part.defaults)} | {_sentence(each)} |\n"
        for name, each in part.fields.items()
    )
    return _HEAD.replace("option", "field") + "".join(rows)


def _sentence(each: Field) -> str:
    return _with_choices(each.text, each.kind.words if isinstance(each.kind, Choice) else ())


def _of_field(each: Field, defaults: Any) -> str:
    """Words for the default of a field."""
    if each.default or each.needed:
        return each.default or "required"
    value = getattr(defaults, each.attribute, None)
    if isinstance(each.kind, Duration):
        return f"`{duration_text(value)}`"
    if isinstance(each.kind, Choice):
        words = [word for word in each.kind.words if each.kind.made(word) == value]
        return f"`{words[0]}`" if words else "none"
    return "none" if value is None else f"`{value.value if isinstance(value, Enum) else value}`"


def table(names: list[str]) -> str:
    """One table. An option that only some of several structs have names their kinds."""
    found: dict[Row, list[str]] = {}
    for name in names:
        form, of = _declared(name)
        for row in _rows(form):
            found.setdefault(row, []).extend(of)
    every = max(map(len, found.values()))
    rows = [
        f"| `{row.name}`{_kinds(of) if len(of) < every or len(names) > 2 else ''}"
        f" | {row.default} | {row.meaning} |\n"
        for row, of in found.items()
    ]
    return _HEAD + "".join(rows)


def _kinds(of: list[str]) -> str:
    return f" ({', '.join(f'`{kind}`' for kind in of)})"


def _declared(name: str) -> tuple[type[msgspec.Struct], list[str]]:
    """A struct by its name, and the kinds that it has the options of."""
    every = [*kinds.kinds().values(), *kinds.option_values().values()]
    found = [each for each in every if each.form is not None and each.form.__name__ == name]
    assert found, f"there is no struct of options {name}"
    form = found[0].form
    assert form is not None
    return form, [each.kind for each in found]


def _rows(form: type[msgspec.Struct]) -> Iterator[Row]:
    options = options_of(form)
    for field in sorted(msgspec.structs.fields(form), key=lambda each: not each.required):
        option = options[field.name]
        yield Row(field.name, option.default or _default(field), _meaning(option))


def _meaning(option: Option) -> str:
    return _with_choices(option.text, option.choices)


def _with_choices(text: str, choices: Sequence[str]) -> str:
    """The sentence, and the choices unless it names all that are not the default."""
    named = [word for word in choices if re.search(rf"`{re.escape(word)}\b", text)]
    if len(named) >= len(choices) - 1:
        return text
    return f"{text}: {', '.join(f'`{word}`' for word in choices)}"


def _default(field: msgspec.structs.FieldInfo) -> str:
    value: Any = field.default
    if field.required:
        return "required"
    if value is msgspec.NODEFAULT or value is None or value in ("", ()):
        return "none"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text.removesuffix('.0')}`"


def pages() -> Iterator[tuple[Path, str]]:
    """The pages that have such tables, as they should be."""
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if "<!-- options:" in text:
            yield path, with_tables(text, path.name)


def main() -> None:
    for path, text in pages():
        if "--write" in sys.argv:
            path.write_text(text, encoding="utf-8")
        else:
            print("\n".join(found[0] for found in _TABLE.finditer(text)))


if __name__ == "__main__":
    main()
