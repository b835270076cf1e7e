"""A number that holds a time has its unit last in its name (CONTRIBUTING.md, rule 8)."""

import ast
from collections.abc import Iterator

import pytest

from tests.sources import name_of, sources

TIMES = {
    "now", "deadline", "timeout", "since", "elapsed", "age", "patience", "interval", "period",
    "wakes_at", "wakes", "due_at", "retry_at", "next_poll", "not_before", "write_by", "duration",
    "lateness", "horizon",
}  # fmt: skip
PUBLIC = {
    ("millwheel/api.py", "now"),
    ("millwheel/core/windows/triggers.py", "now"),
    ("millwheel/tools/testing/pipeline_harness.py", "now"),
    ("millwheel/adapters/grpc/security.py", "timeout"),
}
"""What users write, documented as microseconds where it is declared, and a field that grpc
names."""


def unmeasured(text: str) -> Iterator[tuple[int, str]]:
    """(line, name) of each parameter, field and annotated variable that holds a number of unknown
    unit."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.arg)
            and node.arg.lstrip("_") in TIMES
            and _is_number(node.annotation)
        ):
            yield node.lineno, node.arg
        elif isinstance(node, ast.AnnAssign) and _is_number(node.annotation):
            name = (
                node.target.attr
                if isinstance(node.target, ast.Attribute)
                else ast.unparse(node.target)
            )
            if name.lower().lstrip("_") in TIMES:
                yield node.lineno, name


def _is_number(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation) in (
        "int",
        "float",
        "int | None",
        "float | None",
    )


def test_the_name_of_a_time_ends_with_its_unit() -> None:
    found = [
        f"{name_of(path)}:{line}: {name} is in which unit? {name}_us, {name}_ms or {name}_s"
        for path in sources()
        for line, name in unmeasured(path.read_text(encoding="utf-8"))
        if (name_of(path), name) not in PUBLIC
    ]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "def f(now: int): ...",
        "def f(*, deadline: float | None = None): ...",
        "class A:\n    timeout: float = 1.0",
        "self._since: int = 0",
    ],
)
def test_a_time_without_a_unit_is_noticed(text: str) -> None:
    assert len(list(unmeasured(text))) == 1


@pytest.mark.parametrize(
    "text", ["def f(now_us: int): ...", "def f(since: bytes): ...", "timeout_s: float = 1.0"]
)
def test_a_time_with_a_unit_and_what_is_no_number_is_left_alone(text: str) -> None:
    assert not list(unmeasured(text))
