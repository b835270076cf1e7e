"""The page of settings that only the code has: every number that tunes something, with its unit and
its reason.

    python -m tests.tuning   # print the page, which `make site` builds into the docs site

A constant is listed when it stands at the level of a module and is a number, or holds numbers. Its
unit is the end of its name; its reason is the comment beside or above it, or the text below it.
What must be what it is (formats, flags, sentinels) is not listed: its comment begins with "Fixed",
or it is in SENTINELS.

Values that are passed to a part when it is made, in classes whose names end with Limits or Pace,
follow in a table.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests import rooms

NAME = "tuning.md"
"""The page in the folder of pages, in the built site alone."""
HEAD = """\
# Tuning

Every number in the code that tunes something: timeouts, sizes, counts and shares, each with its
unit and its reason. These are not settings of a pipeline. Each was chosen once for all pipelines,
most of them by measurement; change one in the code, together with the measurement. The settings of
a pipeline and of a run are in [the pipeline file](pipeline.md), [limits](limits.md) and
[scaling](scaling.md).

"""
UNITS = {"US": "µs", "MS": "ms", "S": "s", "BYTES": "bytes", "BITS": "bits", "MB": "MB"}
SENTINELS = frozenset(
    """
    core.model.times.MIN_TIME core.model.times.MAX_TIME core.model.times.LAST_TIME
    core.model.times.IDLE_TIME
    core.windows.state.CLOSED core.windows.state.PAST_ON_TIME core.aggregates.arrival_order.OLD
    core.aggregates.families.exact_sums._LEAST control.injector.range_index.NOWHERE
    control.master.tables.succession.SEALED connect.sources.files.rotation.GENERATION
    connect.sources.files.rotation._LEAP engine.workers.delivery.outbox._COUNT_BITS
    engine.workers.delivery.consumer_keys._KEY_HEAD engine.workers.state.overlay._HEAD
    engine.workers.sinks.upsert._AT_ONCE
    """.split()  # noqa: SIM905
)
_NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Setting:
    """One constant."""

    module: str
    name: str
    value: str
    reason: str

    @property
    def unit(self) -> str:
        """What its name ends with; a plain number otherwise."""
        return UNITS.get(self.name.rpartition("_")[2], "")


@cache  # a look through the whole package
def settings() -> tuple[Setting, ...]:
    """Every constant of the package that is a number or holds some, in the order of modules and
    lines."""
    return tuple(
        setting for module, path in rooms.modules().items() for setting in _of(module, path)
    )


def _of(module: str, path: Path) -> list[Setting]:
    text = path.read_text(encoding="utf-8")
    found, body, lines = [], ast.parse(text).body, text.splitlines()
    for node, after in zip(body, [*body[1:], None], strict=True):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(target, ast.Name):
            continue
        if _NAME.fullmatch(target.id) and value is not None and _is_number(value):
            beside = lines[(node.end_lineno or 1) - 1].partition("  # ")[2]
            reason = beside or _text(after) or _above(lines, node.lineno - 2)
            found.append(Setting(module, target.id, ast.unparse(value), reason))
    return found


def _is_number(node: ast.expr) -> bool:
    """Arithmetic over numbers and constants with at least one number, or a tuple or dict of
    such."""
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(map(_is_number, node.elts))
    if isinstance(node, ast.Dict):
        return bool(node.values) and all(map(_is_number, node.values))
    parts = list(ast.walk(node))
    allowed = (
        ast.Constant
        | ast.BinOp
        | ast.UnaryOp
        | ast.Name
        | ast.operator
        | ast.unaryop
        | ast.expr_context
    )
    numbers = [
        part
        for part in parts
        if isinstance(part, ast.Constant) and type(part.value) in (int, float)
    ]
    return (
        bool(numbers)
        and all(isinstance(part, allowed) for part in parts)
        and len(numbers) == sum(isinstance(part, ast.Constant) for part in parts)
    )


def _above(lines: list[str], row: int) -> str:
    """The comment that ends in this row."""
    first = row
    while first >= 0 and lines[first].startswith("# "):
        first -= 1
    return " ".join(line.removeprefix("# ") for line in lines[first + 1 : row + 1])


def _text(node: ast.stmt | None) -> str:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return " ".join(node.value.value.split())
    return ""


def is_fixed(setting: Setting) -> bool:
    """True for what no measurement could change."""
    name = f"{setting.module.partition('.')[2]}.{setting.name}"
    return setting.reason.startswith("Fixed") or name in SENTINELS


def tables() -> str:
    """The tables of the page, one for each area of the package."""
    areas: dict[str, list[Setting]] = defaultdict(list)
    for setting in settings():
        if not is_fixed(setting):
            areas[setting.module.split(".")[1]].append(setting)
    parts = []
    for area, rows in sorted(areas.items()):
        lines = [
            f"| `{each.module.partition('.')[2]}` | `{each.name}` | {_shown(each)} |"
            f" {each.reason} |"
            for each in rows
        ]
        parts += [
            f"## {area}",
            "",
            "| module | constant | value | what and why |",
            "|---|---|---|---|",
            *lines,
            "",
        ]
    lines = [
        f"| `{module}` | `{name}` | {fields} | {text} |"
        for module, name, fields, text in _passed_in()
    ]
    head = [
        "## Passed to a part when it is made",
        "",
        "| module | class | values | what and why |",
        "|---|---|---|---|",
    ]
    return "\n".join([*parts, *head, *lines, ""])


def _passed_in() -> list[tuple[str, str, str, str]]:
    """(module, class, its fields with their defaults, its docstring) of values that say how much or
    how often."""
    found = []
    for module, path in rooms.modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Limits", "Pace")):
                fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                shown = (
                    f"`{ast.unparse(f.target)}`" + (f" {ast.unparse(f.value)}" if f.value else "")
                    for f in fields
                )
                text = " ".join((ast.get_docstring(node) or "").split())
                found.append((module.partition(".")[2], node.name, ", ".join(shown), text))
    return found


def _shown(each: Setting) -> str:
    return f"{each.value} {each.unit}".strip().replace("|", "\\|")


def page() -> str:
    """The whole page."""
    return HEAD + tables()


if __name__ == "__main__":
    print(page(), end="")
