"""``map:``, ``flat_map:`` and ``filter:``, which run in the order in which they are written,
``branch:`` and ``order_by:``.

    filter: "status < 500"
    map: {path: path, kb: size / 1000}
    flat_map: {word: "split(text, ' ')"}
    branch: {errors: status >= 500, slow: duration > 2, others: otherwise}
    order_by: timestamp

A step is a function of a record's value (``module:function``) or an expression; ``map`` may also
name the fields of the new value, each with an expression, and ``flat_map`` one more field, with a
list of its values. To use one kind twice, ``steps:`` takes a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millwheel.connect.python_objects import OBJECT_NAME
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.core.pipeline.work import BranchSpec, StepKind, StepSpec
from millwheel.language.spec.parts.rows import RANKED
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    Choice,
    Entries,
    ExpressionText,
    Field,
    FilePart,
    ObjectName,
    Own,
)
from millwheel.language.spec.reading.reader import NodeReader

_EXAMPLES = {
    StepKind.MAP: "shapes:visit, or {path: path, kb: size / 1000}",
    StepKind.FLAT_MAP: "words:split, or {word: \"split(text, ' ')\"}",
    StepKind.FILTER: "status < 500",
}
_FUNCTION = (ObjectName("words:split"), ExpressionText("status < 500"))
_NEW_FIELDS = Entries(ExpressionText("size / 1000"), "{kb: size / 1000}")
STEP = FilePart(
    "{filter: status < 500}",
    {
        "map": Field(
            "",
            Own((ExpressionText("size / 1000"), _NEW_FIELDS)),
            "another value; a map gives the [fields of the new one](pipeline.md#steps), each an"
            " expression",
        ),
        "flat_map": Field(
            "",
            Own(
                (*_FUNCTION, Entries(ExpressionText("split(text, ' ')"), "{side: [buyer, seller]}"))
            ),
            "a list of values: none, one or several; a map of one field gives the value once for"
            " [each entry of a list](pipeline.md#steps), with the entry as this field",
        ),
        "filter": Field("", Own(_FUNCTION), "the same value, or nothing"),
    },
)
"""One step from a record's value to others."""
KINDS = tuple(STEP.fields)
STEPS = {
    **STEP.fields,
    "steps": Field("", Own(("steps",)), "[several steps](pipeline.md#steps), in order"),
}
"""The fields of a computation of steps."""


def read_steps(reader: NodeReader, fields: Mapping[str, YamlNode]) -> tuple[StepSpec, ...]:
    """The steps of a computation, in order."""
    if "steps" in fields:
        for name in (name for name in fields if name in KINDS):
            reader.bad(
                fields[name],
                f"there are steps already; add this to them: steps: [{{{name}: …}}, …]",
            )
        steps = [step for item in _items(reader, fields["steps"]) for step in _steps(reader, item)]
    else:
        steps = [
            _step(reader, StepKind(name), node) for name, node in fields.items() if name in KINDS
        ]
    return tuple(step for step in steps if step is not None)


def step_nodes(node: YamlNode) -> Iterator[YamlNode]:
    """The nodes of a computation's steps, in order."""
    fields = node.value if isinstance(node.value, dict) else {}
    listed = fields["steps"].value if "steps" in fields else [node]
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item.value, dict):
            yield from (child for name, child in item.value.items() if name in KINDS)


def _items(reader: NodeReader, node: YamlNode) -> list[YamlNode]:
    if not node.is_list or not node.value:
        text = f"must be a list of steps, not {'an empty one' if node.is_list else node.kind()}"
        reader.bad(
            node, f"{text}; write for example [{{filter: status < 500}}, {{map: shapes:visit}}]"
        )
        return []
    return list(node.value)


def _steps(reader: NodeReader, node: YamlNode) -> list[StepSpec | None]:
    fields = STEP.nodes(reader, node)
    if not fields and not reader.problems.concerns(node.path):
        reader.bad(node, "names no step; write for example {filter: status < 500}")
    return [_step(reader, StepKind(name), child) for name, child in fields.items()]


def _step(reader: NodeReader, kind: StepKind, node: YamlNode) -> StepSpec | None:
    if isinstance(node.value, dict):
        return _fields(reader, kind, node)
    if node.is_list:
        reader.bad(
            node,
            f"must be a function or an expression, not a list; write for example {_EXAMPLES[kind]}",
        )
        return None
    if OBJECT_NAME.fullmatch(node.text):
        return StepSpec(kind, function=node.text)
    expression = reader.expression(node, _EXAMPLES[kind])
    return StepSpec(kind, expression=expression) if expression else None


def _fields(reader: NodeReader, kind: StepKind, node: YamlNode) -> StepSpec | None:
    if kind is StepKind.FILTER:
        reader.bad(
            node,
            f"must be a function or an expression, not a map; write for example {_EXAMPLES[kind]}",
        )
        return None
    if not node.value:
        reader.bad(node, f"names no fields; write for example {_EXAMPLES[kind]}")
        return None
    if kind is StepKind.FLAT_MAP and len(node.value) > 1:
        reader.bad(
            node,
            f"adds one field, not {len(node.value)}, with each entry of one list in turn; for all"
            " combinations of two lists write steps: [{flat_map: …}, {flat_map: …}]",
        )
        return None
    for name, child in node.value.items():
        if child.value is None:
            reader.bad(child, f"has no value; write for example {{{name}: {name}}}")
    example = "size / 1000" if kind is StepKind.MAP else "split(text, ' ')"
    texts = {name: reader.expression(child, example) for name, child in node.value.items()}
    return StepSpec(kind, fields=texts) if all(texts.values()) else None


OTHERWISE = "otherwise"
_BRANCH = "{errors: status >= 500, others: otherwise}"
SORTING = {
    **RANKED,
    "branch": Field(
        "",
        Own((Entries(ExpressionText("status >= 500"), _BRANCH, named=True),)),
        "[which stream a record goes to](pipeline.md#branch): streams with conditions; `otherwise`"
        " takes the rest",
    ),
    "match": Field(
        "match_all",
        Choice(("first", "all"), lambda word: word == "all"),
        "whether a record takes the `first` branch whose condition holds, or `all` of them",
        default="`first`",
    ),
}
"""The fields of a computation that sorts records out."""
ORDER = Field(
    "ordered",
    Choice(("timestamp",), lambda word: True),
    "`timestamp`: the records of a key come [in the order of their times](pipeline.md#order_by)",
    default="as they come",
)


def read_branches(reader: NodeReader, node: YamlNode | None) -> tuple[BranchSpec, ...]:
    """The branches, in the order in which they are tried."""
    if node is None:
        return ()
    branches: list[BranchSpec] = []
    for stream, child in reader.entries(node, _BRANCH).items():
        if not reader.check_name(child, stream, "stream"):
            continue
        if stream == DEAD_LETTERS:
            reader.bad(child, f"{DEAD_LETTERS!r} is filled by the system; choose another name")
        elif child.text == OTHERWISE:
            branches.append(BranchSpec(stream))
        elif condition := reader.expression(
            child, "status >= 500, or otherwise for records of no other branch"
        ):
            branches.append(BranchSpec(stream, condition))
    rests = [each.stream for each in branches if not each.condition]
    if len(rests) > 1:
        reader.bad(
            node.value[rests[1]],
            f"{rests[0]} already takes the records of no other branch; give a condition",
        )
    if not branches and not reader.problems.concerns(node.path):
        reader.bad(node, f"names no stream; write for example {_BRANCH}")
    return tuple(branches)


def check_sorting(reader: NodeReader, fields: Mapping[str, YamlNode]) -> None:
    """Note ``match`` without branches, and ``order_by`` where order makes no difference."""
    if "match" in fields and "branch" not in fields:
        reader.bad(fields["match"], "match is for computations with branch; leave it out")
    if "order_by" in fields and "window" in fields:
        reader.bad(
            fields["order_by"],
            "a window does not depend on the order of its records; leave out order_by",
        )
