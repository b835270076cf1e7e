"""Who may import what: layers, pure modules, services, libraries of outside systems, and rooms."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests import rooms
from tests.sources import (
    HOUSE,
    PACKAGE,
    SERVICES,
    imports_of,
    name_of,
    nodes_of,
    offences,
    sources,
    tree_of,
)

PURE_NAMES = frozenset({"state.py", "events.py", "effects.py", "planner.py"})

# What a pure module may take from outside: values, data structures and arithmetic, nothing that
# does or waits.
PURE_LIBRARIES = frozenset(
    """
    __future__ abc array ast binascii bisect calendar collections contextlib copy dataclasses
    datetime decimal difflib enum fractions functools hashlib heapq io itertools json math numbers
    operator re statistics string struct types typing unicodedata warnings weakref zlib zoneinfo
    bitarray datasketches ddsketch msgspec numpy polars pyarrow pybloom_live pyroaring simpleeval
    typing_extensions xxhash
    """.split()  # noqa: SIM905
)


def must_be_pure(path: Path) -> bool:
    return PACKAGE / "core" in path.parents or path.name in PURE_NAMES


def allowed_in_pure(name: str, path: Path) -> bool:
    """Values and arithmetic, core, the shapes of ports, and modules that keep to the same rule."""
    top, *rest = name.split(".")
    if top != "millwheel":
        return top in PURE_LIBRARIES
    if rest[0] in ("core", "errors") or rest[:2] == ["adapters", "ports"]:
        return True
    sibling = module_of(rest)
    return sibling is not None and sibling != path and is_pure(sibling)


def module_of(parts: list[str]) -> Path | None:
    """The file of ``millwheel.PARTS``, whose last parts may be names within it."""
    found = (
        PACKAGE.joinpath(*parts[:length]).with_suffix(".py") for length in range(len(parts), 0, -1)
    )
    return next((path for path in found if path.exists()), None)


@cache
def is_pure(path: Path) -> bool:
    return all(allowed_in_pure(name, path) for name in imports_of(path))


def test_pure_modules_import_nothing_that_acts() -> None:
    pure = tuple(path for path in sources() if must_be_pure(path))
    assert pure
    assert not offences(lambda path, name: not allowed_in_pure(name, path), pure)


def test_pure_modules_call_no_clock_and_no_chance() -> None:
    forbidden = {"now", "utcnow", "today", "urandom", "open", "print", "input", "getenv"}
    found = [
        f"{name_of(path)}:{call.lineno} calls {word}"
        for path in sources()
        if must_be_pure(path)
        for call in nodes_of(path)
        if isinstance(call, ast.Call)
        and (word := called_name(call)) in forbidden
    ]  # fmt: skip
    assert not found


def called_name(call: ast.Call) -> str:
    """The bare function called, or a method of a module-like name (``datetime.now``), "" for
    anything else."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name | ast.Attribute):
        owner = function.value.id if isinstance(function.value, ast.Name) else function.value.attr
        return function.attr if owner in ("datetime", "date", "os", "time") else ""
    return ""


def test_services_do_not_know_each_other() -> None:
    def stranger(path: Path, name: str) -> bool:
        own, others = path.relative_to(PACKAGE).parts[1:2], (*name.split(".")[2:3],)
        return (
            name.startswith("millwheel.") and own != others and {*own, *others} <= SERVICES.keys()
        )

    assert not offences(stranger, sources())


def test_a_layer_imports_those_below_it_only() -> None:
    assert not rooms.upward()


def test_every_name_at_the_top_is_a_layer_or_public() -> None:
    names = {rooms.layer_of(module) for module in rooms.modules()} - {""}
    assert names == {*rooms.LAYERS, *rooms.PUBLIC}


def test_public_modules_hold_names_and_no_code() -> None:
    """So that a type checker and a reader get from the public name to the code in one step."""
    for module, path in rooms.modules().items():
        if rooms.layer_of(module) in rooms.PUBLIC:
            [_, *others, names] = tree_of(path).body
            assert all(isinstance(each, ast.ImportFrom) for each in others), name_of(path)
            assert ast.unparse(names).startswith("__all__ = "), name_of(path)


@pytest.mark.parametrize(
    ("library", "rooms_of_it"),
    [
        ("grpc", r"millwheel/adapters/.*\.py|millwheel/(control|engine)/[a-z]+/server\.py"),
        ("confluent_kafka", r"millwheel/connect/(connectors/kafka/\w+|formats/registry)\.py"),
        ("fastavro", r"millwheel/connect/formats/avro/\w+\.py"),
        ("kazoo", r"millwheel/adapters/zookeeper/\w+\.py"),
        ("rocksdict", r"millwheel/adapters/stores/rocksdb\.py"),
        ("pyspark", r"millwheel/launch/launchers/spark/(context|launcher|daemon)\.py"),
        ("obstore", r"millwheel/adapters/spaces/object_\w+\.py"),
        ("typer", r"millwheel/tools/(cli/.*|http_source)\.py|millwheel/.*__main__\.py"),
    ],
)
def test_each_outside_system_is_imported_in_one_room(library: str, rooms_of_it: str) -> None:
    def trespasses(path: Path, name: str) -> bool:
        return name.split(".")[0] == library and not re.fullmatch(rooms_of_it, name_of(path))

    assert not offences(trespasses, sources())


def test_only_entry_points_choose_adapters() -> None:
    """What stands for an outside system is chosen in ``__main__``, by a command, by the driver or
    by a test harness, and passed on."""
    ports = (
        r"millwheel\.adapters(\.\w+)+\."
        r"(open_\w+|FileJournals|FileSnapshots|RocksStores|ZooKeeperCoordination|EmbeddedZooKeeper)"
    )
    control = r"control/(roots|savepoints)/.*"
    choosers = rf"(tools/(cli|testing)/.*|launch/.*|{control}|adapters/.*|.*__main__)\.py"

    def trespasses(path: Path, name: str) -> bool:
        return bool(re.fullmatch(ports, name)) and not re.fullmatch(
            f"millwheel/{choosers}", name_of(path)
        )

    assert not offences(trespasses, sources())


def test_rooms_import_each_other_in_one_direction() -> None:
    assert not rooms.circle()


def test_what_runs_in_a_spark_task_loads_none_of_the_libraries_that_must_not_be_forked() -> None:
    code = "import sys, millwheel.launch.launchers.spark.task as _\n"
    code += "print([m for m in ('grpc', 'kazoo', 'rocksdict') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=HOUSE
    )
    assert done.stdout.strip() == "[]"
