"""``branch:`` and ``order_by:`` of a computation.

branch: {errors: status >= 500, slow: duration > 2, others: otherwise}
order_by: timestamp
"""

from __future__ import annotations

from collections.abc import Mapping

from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.core.pipeline.work import BranchSpec
from millwheel.language.spec.ranked.reading import RANKED
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    Choice,
    Entries,
    ExpressionText,
    Field,
    Own,
)
from millwheel.language.spec.reading.reader import NodeReader

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
