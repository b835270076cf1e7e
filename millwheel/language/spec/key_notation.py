"""``key:``, the fields by which records of an input are grouped, and ``null_key:``.

key: path
key: [country, path]
key: {day: "trunc(ts, '1d')", user: user}
key: all
key: keys:by_user
"""

from __future__ import annotations

import re

from millwheel.connect.python_objects import OBJECT_NAME
from millwheel.core.aggregates.functions import FUNCTIONS as AGGREGATES
from millwheel.core.expressions.functions import FUNCTIONS
from millwheel.core.pipeline.keys import OWN_KEY, KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    Choice,
    Entries,
    ExpressionText,
    Field,
    FilePart,
    Items,
    Own,
    Text,
)
from millwheel.language.spec.reading.reader import NodeReader, is_expression

_ALL = "all"
_NAMED = "{day: \"trunc(ts, '1d')\"}"
KEY_SHAPES: tuple[Items, Entries] = (
    Items(Text("path")),
    Entries(ExpressionText("lower(path)"), _NAMED),
)
"""How a key may be written."""
KEY = FilePart(
    "{key: path}",
    {
        "key": Field(
            "",
            Own(KEY_SHAPES),
            "fields, [named expressions](pipeline.md#keys), a function of yours, or `all`: one"
            " group of everything",
            default="[the key of the producer](pipeline.md#input)",
        ),
        "null_key": Field(
            "nulls",
            Choice(("dead_letter", "group"), lambda word: word == "group"),
            "how a record with a null in its key is treated: as a `dead_letter`, or in a `group` of"
            " its own",
            default="`dead_letter`",
        ),
    },
)
_CALL = re.compile(r"(\w+)\(")


def read_input_key(reader: NodeReader, node: YamlNode) -> KeySpec:
    """The key of an input, from the map behind the name of its stream."""
    if isinstance(node.value, str):
        reader.bad(
            node, f"must be a map; write {{key: {node.value[:60]}}} to take the key from there"
        )
        return OWN_KEY
    fields = KEY.nodes(reader, node)
    nulls = KEY.fields["null_key"].value(reader, fields.get("null_key"), False)
    key = read_key(reader, fields["key"]) if "key" in fields else OWN_KEY
    if not nulls:
        return key
    if not key.fields and not reader.problems.concerns(node.path):
        reader.bad(fields["null_key"], _WHY_NO_NULLS[key.kind])
    return KeySpec(key.kind, key.names, texts=key.texts, nulls=True)


_WHY_NO_NULLS = {
    KeyKind.RECORD: "is for keys that are read from fields; write key: FIELD beside it",
    KeyKind.ALL: "is for keys that are read from fields, and key: all reads none; leave it out",
    KeyKind.FUNCTION: (
        "is for fields and expressions; let the function return another value in place of None"
    ),
}


def read_key(reader: NodeReader, key: YamlNode) -> KeySpec:
    """The value of ``key:``; OWN_KEY if it cannot be read."""
    if isinstance(key.value, dict):
        return _named(reader, key)
    if isinstance(key.value, list):
        names = tuple(reader.text(item, "path") for item in key.value)
        if not names or "" in names:
            reader.bad(key, "names no fields; write for example [country, path]")
            return OWN_KEY
        return _plain(names)
    text = reader.text(key, "path, [country, path] or keys:by_user")
    if text == _ALL:
        return KeySpec(KeyKind.ALL)
    if is_expression(text):
        reader.bad(
            key,
            f"{text[:80]!r} is an expression, and needs a name, which results have for its value:"
            f" write {{NAME: {_quoted(text[:80])}}}",
        )
        return OWN_KEY
    if ":" not in text:
        return _plain((text,)) if text else OWN_KEY
    if not OBJECT_NAME.fullmatch(text):
        reader.bad(key, f"{text[:80]!r} is neither a field nor module:function")
        return OWN_KEY
    return KeySpec(KeyKind.FUNCTION, (text,))


def _plain(names: tuple[str, ...]) -> KeySpec:
    return KeySpec(KeyKind.FIELDS if len(names) > 1 else KeyKind.FIELD, names)


def _named(reader: NodeReader, node: YamlNode) -> KeySpec:
    """A key of expressions; one of fields where each only names the field of its own name."""
    if not node.value:
        reader.bad(node, f"names no expressions; write for example {_NAMED}")
    texts = {}
    for name, child in reader.entries(node, _NAMED).items():
        if not name.isidentifier():
            reader.bad(
                child,
                f"{name[:80]!r} cannot be the name of a field of results: write letters, digits and"
                " _, not beginning with a digit",
            )
        elif aggregate := _aggregate_in(child):
            reader.bad(
                child,
                f"{aggregate}() is computed of the records of a group, and a key decides which"
                " group a record belongs to; write it below aggregate",
            )
        elif text := reader.expression(child, "lower(path)"):
            if not reader.language.compile(text).fields:
                reader.bad(
                    child,
                    f"`{text[:80]}` is the same for all records; for one group of everything write"
                    " key: all",
                )
            texts[name] = text
    if not texts:
        return OWN_KEY
    if all(name == text for name, text in texts.items()):
        return _plain(tuple(texts))
    return KeySpec(KeyKind.EXPRESSIONS, tuple(texts), texts=tuple(texts.values()))


def _aggregate_in(node: YamlNode) -> str:
    """An aggregate that is called as if it were a function of expressions; "" for none."""
    text = node.value if isinstance(node.value, str) else ""
    called = (name for name in _CALL.findall(text) if name not in FUNCTIONS)
    return next((name for name in called if name in AGGREGATES), "")


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w()+*/ -]+", text) else f'"{text}"'


def key_names(inputs: tuple[InputSpec, ...]) -> tuple[str, ...]:
    """The fields of a result that hold the key."""
    return inputs[0].key.shown if inputs else ("key",)
