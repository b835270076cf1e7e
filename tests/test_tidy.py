"""The rules of the house that a machine can check: sizes, names, services and generated code;
tests/test_imports.py has those on imports."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import rooms
from tests.sources import (
    GENERATED,
    HOUSE,
    PACKAGE,
    SERVICES,
    name_of,
    nodes_of,
    offences,
    sources,
    tree_of,
)

MAX_LINES = 545


def test_public_class_names_are_unique() -> None:
    """A class that a reader meets by its name alone is one class."""
    homes: dict[str, list[str]] = {}
    for path in sources():
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name_of(path))
    assert not {name: found for name, found in homes.items() if len(found) > 1}


def test_files_have_one_owner_and_a_readable_length() -> None:
    lengths = {
        name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()
    }
    assert not {name: length for name, length in lengths.items() if length > MAX_LINES}


MAX_METHODS, MAX_ATTRIBUTES = 28, 22
LARGE_CLASSES = {
    "MemoryDisk": "a file system: one method per system call",
    "Part": "a value: how far one partition of a source has been read",
    "WorkerRuntime": "one attribute per part of the loop, and hardly any state besides",
}
"""Classes beyond the limits, and why they are not divided."""


def test_a_class_is_small_or_says_why_it_is_not() -> None:
    large = {
        node.name
        for path in sources()
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and not is_plain_value(node)
        and (len(methods_of(node)) > MAX_METHODS or len(attributes_of(node)) > MAX_ATTRIBUTES)
    }  # fmt: skip
    assert large == LARGE_CLASSES.keys(), "divide a class by what it owns, or say here why not"


def is_plain_value(node: ast.ClassDef) -> bool:
    """A frozen dataclass or a Struct has as many fields as what it describes."""
    frozen = any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list)
    return frozen or any("Struct" in ast.unparse(base) for base in node.bases)


def methods_of(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [each for each in node.body if isinstance(each, ast.FunctionDef)]


def attributes_of(node: ast.ClassDef) -> set[str]:
    """Fields of a dataclass, and whatever methods assign to ``self``."""
    names = {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
    for method in methods_of(node):
        stored = (each for each in ast.walk(method) if isinstance(each, ast.Attribute))
        names |= {
            each.attr
            for each in stored
            if isinstance(each.ctx, ast.Store)
            and isinstance(each.value, ast.Name)
            and each.value.id == "self"
        }
    return names


def test_a_room_has_about_a_dozen_files() -> None:
    assert not {str(room): len(names) for room, names in rooms.rooms().items() if len(names) > 13}


def test_nothing_is_left_for_later() -> None:
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")
    found = [
        name_of(path)
        for path in everything_written()
        if words.search(path.read_text(encoding="utf-8"))
    ]
    assert not [name for name in found if name != name_of(Path(__file__))]


SERVICERS = {
    "injector": ("millwheel.control.injector.server", "_Service", "InjectorServicer"),
    "master": ("millwheel.control.master.server", "MasterService", "MasterServicer"),
    "worker": ("millwheel.engine.workers.server", "WorkerService", "WorkerServicer"),
}


@pytest.mark.parametrize("name", SERVICERS)
def test_every_method_of_a_service_is_implemented(name: str) -> None:
    """The bases that gRPC generates answer each call with UNIMPLEMENTED: none of those answers may
    be left."""
    module, service, base = SERVICERS[name]
    generated = getattr(importlib.import_module(f"millwheel.adapters.pb.{name}_pb2_grpc"), base)
    methods = {method for method in vars(generated) if not method.startswith("_")}
    assert methods
    assert methods <= vars(getattr(importlib.import_module(module), service)).keys()


def test_every_generated_service_is_known() -> None:
    assert {
        path.name.removesuffix("_pb2_grpc.py") for path in GENERATED.glob("*_pb2_grpc.py")
    } == SERVICERS.keys()


def everything_written() -> list[Path]:
    folders = ("millwheel", "tests", "examples", "bench", "deploy")
    found = [path for folder in folders for path in sorted((HOUSE / folder).rglob("*.py"))]
    return [path for path in found if GENERATED not in path.parents]


def test_nothing_from_outside_can_run_code() -> None:
    """No decoder here makes objects of the sender's choice, or runs what it reads."""
    modules = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle", "yaml"}
    assert not offences(lambda _, name: name.split(".")[0] in modules, sources())
    found = [
        f"{name_of(path)}:{call.lineno} {ast.unparse(call.func)}"
        for path in sources()
        for call in nodes_of(path)
        if isinstance(call, ast.Call) and runs_code(call)
    ]
    assert not found


def runs_code(call: ast.Call) -> bool:
    """Builtins that run text, unpickling under any name, archives unpacked unseen, and unsafe
    YAML."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    words = {word.arg: ast.unparse(word.value) for word in call.keywords}
    unsafe_yaml = (name or method) == "YAML" and "'unsafe'" in words.get("typ", "")
    unpickles = method in ("Unpickler", "extractall") or words.get("allow_pickle") == "True"
    return name in ("eval", "exec", "compile", "__import__") or unsafe_yaml or unpickles


@pytest.mark.parametrize(
    "text",
    [
        "eval(x)",
        "exec(x)",
        "np.load(f, allow_pickle=True)",
        "YAML(typ='unsafe')",
        "z.extractall(p)",
    ],
)
def test_the_rule_against_running_code_bites(text: str) -> None:
    call = ast.parse(text).body[0].value  # type: ignore[attr-defined]
    assert runs_code(call)


def test_only_commands_print() -> None:
    found = [
        f"{name_of(path)}:{call.lineno}"
        for path in sources()
        if PACKAGE / "tools" / "cli" not in path.parents
        for call in nodes_of(path)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "print"
    ]
    assert not found


def test_every_module_and_public_name_says_what_it_is() -> None:
    silent = [
        name_of(path)
        for path in sources()
        if path.stat().st_size and not ast.get_docstring(tree_of(path))
    ]
    for path in sources():
        for node in tree_of(path).body:
            named = isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith(
                "_"
            )
            if named and not ast.get_docstring(node):  # type: ignore[arg-type]
                silent.append(f"{name_of(path)}: {node.name}")  # type: ignore[attr-defined]
    assert not silent


def test_public_names_can_be_imported_and_are_documented() -> None:
    millwheel = importlib.import_module("millwheel")
    assert millwheel.__all__ == sorted(millwheel.__all__)
    for name in millwheel.__all__:
        assert (getattr(millwheel, name).__doc__ or "").strip(), (
            f"millwheel.{name} has no docstring"
        )


def test_the_three_services_are_doors_of_the_house() -> None:
    for service, layer in SERVICES.items():
        link = HOUSE / service
        assert link.is_symlink(), f"{service} is not a link"
        assert os.readlink(link) == f"millwheel/{layer}/{service}"


def test_the_glossary_has_every_noun() -> None:
    words = (HOUSE / "GLOSSARY.md").read_text(encoding="utf-8").lower()
    nouns = (
        "record, stream, computation, node, key range, shard, lease token, incarnation, bundle,"
        " commit, production, journal, seal, snapshot, low watermark, injector, master, root, slot,"
        " launcher, cut, channel, partition, lineage, window, trigger, pane, timer, dead letter,"
        " source, sink, driver"
    )
    assert not [noun for noun in nouns.split(", ") if noun not in words]


def test_generated_code_is_what_the_protos_say(tmp_path: Path) -> None:
    protos = sorted((HOUSE / "proto").rglob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{HOUSE / 'proto'}"]
    command += [
        f"--{kind}_out={tmp_path}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")
    ]
    # where protoc finds its plug-ins
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [*command, *map(str, protos)], check=True, cwd=HOUSE, env={**os.environ, "PATH": path}
    )
    made = {
        path.name: path.read_text() for path in (tmp_path / GENERATED.relative_to(HOUSE)).iterdir()
    }
    kept = {name: (GENERATED / name).read_text() for name in made if (GENERATED / name).exists()}
    assert made == kept, "run `make proto` and commit the result"


PYTHONS = ("__file__", "__module__", "__name__", "__qualname__")
"""What Python itself gives to some modules, classes and functions and not to others."""

# Where an object that is not ours is asked for what it may not have. Ours have a base class that
# declares it.
PROBES = {
    "millwheel/adapters/exchange/exchange.py": "selectors of some systems have no file descriptor",
    "millwheel/core/machines/specs.py": "window objects of users are of any class",
    "millwheel/launch/launchers/spark/context.py": (
        "an attribute of PySpark that no page promises"
    ),
    "millwheel/python/fluent/windowed_streams.py": "window objects of users are of any class",
}


def probes_in(tree: ast.AST) -> Iterator[ast.Call]:
    """Questions whether an object has an attribute of a certain name."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr")
        ):
            name = node.args[1]
            if (
                isinstance(name, ast.Constant)
                and name.value not in PYTHONS
                and (node.func.id == "hasattr" or len(node.args) == 3)
            ):
                yield node


def test_capabilities_are_declared_by_base_classes_and_not_probed_for() -> None:
    """A probe with a misspelt or renamed name is silently false for ever."""
    assert {name_of(path) for path in sources() if any(probes_in(tree_of(path)))} == PROBES.keys()


def test_a_probe_is_noticed() -> None:
    found = probes_in(
        ast.parse(
            "getattr(source, 'poll_us', 5); hasattr(sink, 'adopt'); getattr(kind, name);"
            " getattr(function, '__name__', '')"
        )
    )
    assert len(list(found)) == 2


def test_tests_and_mistakes_that_comments_name_exist() -> None:
    """A comment at a dangerous line says ``test_…`` or ``mistake …``: what would notice if the line
    were wrong."""
    tests = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((HOUSE / "tests").rglob("*.py"))
    )
    known = set(re.findall(r"^ *def (\w+)\(", tests, re.MULTILINE))
    for path in sources():
        comments = re.sub(
            r"\n *# ", " ", "\n".join(re.findall(r"^ *# .*", path.read_text(), re.MULTILINE))
        )
        named = re.findall(r"\b(test_\w+)\b(?!\.py|…)|mistake (\w+_\w+)", comments)
        missing = {name for pair in named for name in pair if name} - known
        assert not missing, f"{name_of(path)} names {', '.join(sorted(missing))}"
