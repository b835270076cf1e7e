"""The ``functions:`` part: functions of the user's own, by the names that expressions call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millwheel.connect.own_functions import named_alone, own_function
from millwheel.connect.python_objects import load_object
from millwheel.core.expressions.declaration import NullLogic, OwnFunction
from millwheel.core.expressions.functions import FUNCTIONS as KNOWN
from millwheel.core.expressions.language import Language
from millwheel.core.expressions.nodes import CONSTANTS
from millwheel.errors import PipelineError
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    FAILED,
    Choice,
    Entries,
    Field,
    FilePart,
    Flag,
    ObjectName,
    Own,
)
from millwheel.language.spec.reading.reader import NodeReader

_EXAMPLE = "{rating: scores:rating}"
FUNCTION = FilePart(
    "{callable: scores:rating, vectorized: true, returns: int}",
    {
        "callable": Field(
            "target",
            ObjectName("scores:rating"),
            "the function, as `module:function`",
            "write callable: module:function",
        ),
        "vectorized": Field(
            "vectorized",
            Flag(),
            "whether it takes an array of Arrow for each argument and gives one, so that"
            " expressions which call it stay in columns",
        ),
        "returns": Field(
            "returns",
            Choice(("int", "float", "str", "bool")),
            "the type of the values in its array",
        ),
    },
)


def _function(reader: NodeReader, node: YamlNode) -> Any:
    """The attributes of a function, which may be its name alone."""
    if not node.is_map:
        target = ObjectName("scores:rating").read(reader, node)
        return FAILED if target is FAILED else {"target": target}
    attributes = FUNCTION.read(reader, node)
    if attributes.get("vectorized") and "returns" not in node.value:
        reader.missing(
            node, "returns", "declare the type of the values: returns: int, float, str or bool"
        )
    elif attributes.get("returns") and not attributes.get("vectorized"):
        reader.bad(
            node,
            "`returns` is for functions of arrays; write vectorized: true beside it, or leave it"
            " out",
        )
    return attributes if "target" in attributes else FAILED


FUNCTIONS = Field(
    "",
    Entries(Own((ObjectName("scores:rating"), FUNCTION), _function), _EXAMPLE),
    "[functions of yours](expressions.md#functions-of-your-own) for the expressions of"
    " computations: names, each with its `module:function`",
)
NULLS = Field(
    "",
    Choice(tuple(each.value for each in NullLogic), NullLogic),
    "the meaning of [nulls](expressions.md#nulls) in expressions: an `error` in computing with one,"
    " or unknown, as in `sql`",
    default="`error`",
)
_READ = ("has", "get", "field", *CONSTANTS)
"""Words of expressions that are no functions of the table."""


@dataclass(frozen=True, slots=True)
class Functions:
    """Names with their ``module:function``, the types of functions of arrays, and the language that
    has them."""

    targets: Mapping[str, str]
    vectorized: Mapping[str, str]
    language: Language


def read_nulls(reader: NodeReader, top: YamlNode) -> NullLogic:
    """The meaning of nulls in the expressions of a pipeline."""
    node = top.value.get("nulls") if top.is_map else None
    written = node if node is not None and node.value is not None else None
    logic: NullLogic = NULLS.value(reader, written, NullLogic.ERROR)
    return logic


def read_functions(
    reader: NodeReader, top: YamlNode, folder: str, check_code: bool, nulls: NullLogic
) -> Functions:
    """The functions of a pipeline, and its language. Without ``check_code`` none is loaded."""
    node = top.value.get("functions") if top.is_map else None
    functions: Mapping[str, Any] = FUNCTIONS.value(reader, node, {})
    targets = {name: each["target"] for name, each in functions.items()}
    arrays = {
        name: each["returns"]
        for name, each in functions.items()
        if each.get("vectorized") and "returns" in each
    }
    for name in targets:
        assert node is not None
        _check_name(reader, node.value[name], name)
    if not check_code or not targets:
        return Functions(targets, arrays, named_alone(targets, nulls, arrays))
    own = {
        name: _loaded(reader, node, name, target, folder, arrays.get(name, ""))
        for name, target in targets.items()
    }
    return Functions(targets, arrays, Language(own, nulls))


def _check_name(reader: NodeReader, node: YamlNode, name: str) -> None:
    if not name.isidentifier():
        reader.bad(
            node,
            f"{name[:80]!r} cannot be called: write letters, digits and _, not beginning with a"
            " digit",
        )
    elif name in KNOWN or name in _READ:
        reader.bad(node, f"expressions have {name!r} already; choose another name")


def _loaded(
    reader: NodeReader, node: YamlNode | None, name: str, target: str, folder: str, returns: str
) -> OwnFunction:
    try:
        return own_function(name, load_object(target, folder), returns)
    except PipelineError as ex:
        assert node is not None
        reader.bad(node.value[name], str(ex))
        return OwnFunction(name, _missing)


def _missing(*arguments: object) -> None:
    """Stands for a function that could not be loaded, which is a problem already."""
