"""``map:``, ``flat_map:`` and ``filter:`` of a computation, which are done in the order in which they are written.

    filter: "status < 500"
    map: {path: path, kb: size / 1000}
    flat_map: words:split

Each is a function of a record's value (``module:function``) or an expression; ``map`` may also name the fields of the
new value, each with an expression.
"""

from __future__ import annotations

from collections.abc import Mapping

from millwheel.core.spec import StepKind, StepSpec
from millwheel.spec.loading import OBJECT_NAME
from millwheel.spec.nodes import Node
from millwheel.spec.reader import Reader

FIELDS = tuple(kind.value for kind in StepKind)
_EXAMPLES = {
    StepKind.MAP: "shapes:visit, or {path: path, kb: size / 1000}",
    StepKind.FLAT_MAP: "words:split",
    StepKind.FILTER: "status < 500",
}


def read_steps(reader: Reader, fields: Mapping[str, Node]) -> tuple[StepSpec, ...]:
    """The steps among the fields of a computation, in their order."""
    found = [_step(reader, StepKind(name), node) for name, node in fields.items() if name in FIELDS]
    return tuple(step for step in found if step is not None)


def _step(reader: Reader, kind: StepKind, node: Node) -> StepSpec | None:
    if isinstance(node.value, dict):
        return _fields(reader, kind, node)
    if node.is_list:
        reader.bad(node, f"must be a function or an expression, not a list; write for example {_EXAMPLES[kind]}")
        return None
    if OBJECT_NAME.fullmatch(node.text):
        return StepSpec(kind, function=node.text)
    expression = reader.expression(node, _EXAMPLES[kind])
    return StepSpec(kind, expression=expression) if expression else None


def _fields(reader: Reader, kind: StepKind, node: Node) -> StepSpec | None:
    if kind is not StepKind.MAP:
        reader.bad(node, f"must be a function or an expression, not a map; write for example {_EXAMPLES[kind]}")
        return None
    if not node.value:
        reader.bad(node, f"names no fields; write for example {_EXAMPLES[kind]}")
        return None
    for name, child in node.value.items():
        if child.value is None:
            reader.bad(child, f"has no value; write for example {{{name}: {name}}}")
    texts = {name: reader.expression(child, "size / 1000") for name, child in node.value.items()}
    return StepSpec(kind, fields=texts) if all(texts.values()) else None
