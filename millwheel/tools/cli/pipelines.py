"""A pipeline before it runs: ``millwheel explain`` draws it, ``millwheel validate`` lists all its
errors, ``millwheel explain-upgrade`` compares it with the state of another one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from millwheel.adapters.rights import under_users_umask
from millwheel.control.roots.shipping import with_defaults
from millwheel.control.savepoints.blueprint import Blueprint, blueprint_of
from millwheel.control.savepoints.compatibility import Change, compare, worst
from millwheel.control.savepoints.record import RECORD_FILE, read_record
from millwheel.control.savepoints.rules import Compatibility
from millwheel.control.savepoints.upgrade import kept_blueprint
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import PipelineError, SetupError
from millwheel.language.spec import load_pipeline, resolve_params
from millwheel.language.spec.parameters import stand_ins
from millwheel.language.spec.pipelines import check_pipeline, read_document
from millwheel.tools.cli.status import write_json
from millwheel.tools.explain.mermaid import mermaid_of
from millwheel.tools.explain.picture import picture_of
from millwheel.tools.explain.svg import svg_of
from millwheel.tools.explain.tree import tree_of


def explain(
    pipeline: str,
    params: Mapping[str, str],
    svg: str,
    console: Console,
    mermaid: bool = False,
    as_json: bool = False,
) -> None:
    """Print the tree, or the same as ``mermaid`` text or JSON, and write the SVG if a file is
    named. Parameters of sources and sinks without a value are shown as written."""
    unset = stand_ins(read_document(pipeline).top, lambda name: f"${{{name}}}")
    values = resolve_params(pipeline, params, os.environ, os.getcwd())
    picture = picture_of(load_pipeline(pipeline, {**unset, **values}))
    if svg:
        try:
            with under_users_umask():
                Path(svg).write_text(svg_of(picture), encoding="utf-8")
        except OSError as error:
            raise SetupError(
                f"{svg} cannot be written: {error.strerror}; name a file in a folder that exists"
            ) from error
    if as_json:
        return write_json(picture)
    if mermaid:
        return print(mermaid_of(picture), end="")
    return console.print(tree_of(picture))


_CONCLUSIONS = {
    Compatibility.FREE: (
        "The same root can continue with it: stop the run, and run the new pipeline on it."
    ),
    Compatibility.SAVEPOINT: (
        "A savepoint is needed: `millwheel stop --savepoint FOLDER`, then `millwheel run` with "
        "--from-savepoint FOLDER and a new --root."
    ),
    Compatibility.REFUSED: (
        "The new pipeline cannot continue with this state while anything is refused."
    ),
}


class Upgrade(msgspec.Struct, frozen=True):
    """Every change with its verdict, and the worst of them, in ``--json``."""

    verdict: Compatibility
    changes: list[Change]


def explain_upgrade(
    old: str, new: str, params: Mapping[str, str], console: Console, as_json: bool = False
) -> int:
    """Print every change with its verdict; 1 when one is refused."""
    before = _blueprint(old, params)
    changes = compare(before, _of_file(new, params))
    verdict = worst(changes)
    if as_json:
        write_json(Upgrade(verdict, changes))
        return int(verdict is Compatibility.REFUSED)
    if changes:
        console.print(_table(changes))
    else:
        console.print(
            "No change concerns state. The behaviour of the code may have changed.", markup=False
        )
    console.print(_CONCLUSIONS[verdict], markup=False, highlight=False, soft_wrap=True)
    return int(verdict is Compatibility.REFUSED)


def _table(changes: list[Change]) -> Table:
    table = Table("node", "verdict", "change", box=None, pad_edge=False)
    for change in changes:
        table.add_row(change.node, change.verdict.value, change.sentence)
    return table


def _blueprint(path: str, params: Mapping[str, str]) -> Blueprint:
    folder = Path(path)
    if not folder.is_dir():
        return _of_file(path, params)
    if (folder / RECORD_FILE).exists():
        return read_record(folder).blueprint
    blueprint = kept_blueprint(folder)
    if blueprint is None:
        raise SetupError(
            f"{folder} is neither a savepoint (it has no {RECORD_FILE}) nor a root that was run;"
            " give one of them, or a pipeline's file"
        )
    return blueprint


def _of_file(pipeline: str, params: Mapping[str, str]) -> Blueprint:
    """Parameters without a value keep their names as values, so they count as equal in both."""
    unset = stand_ins(read_document(pipeline).top, lambda name: f"${{{name}}}")
    values = resolve_params(pipeline, params, os.environ, os.getcwd())
    return blueprint_of(with_defaults(load_pipeline(pipeline, {**unset, **values}), ""))


class Verdict(msgspec.Struct, frozen=True):
    """The output of ``--json``. ``problems`` and ``warnings`` are sentences that begin with file
    and line."""

    valid: bool
    pipeline: str
    streams: int
    computations: int
    sinks: int
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def validate(pipeline: str, params: Mapping[str, str], as_json: bool) -> int:
    """Print its errors, or that there are none. Returns the exit code. Raises PipelineError,
    without ``as_json``, if it is wrong."""
    try:
        values = resolve_params(pipeline, params, os.environ, os.getcwd())
        spec, warnings = check_pipeline(pipeline, values)
    except PipelineError as error:
        if not as_json:
            raise
        write_json(Verdict(False, "", 0, 0, 0, tuple(error.problems)))
        return 1
    if as_json:
        counts = (len(spec.streams), len(spec.computations), len(spec.sinks))
        write_json(Verdict(True, spec.name, *counts, warnings=tuple(warnings)))
        return 0
    for warning in warnings:
        print(f"warning: {warning}")
    print(f"{spec.name}: {_counted(spec)}; all right")
    return 0


def _counted(spec: PipelineSpec) -> str:
    parts = ((spec.streams, "streams"), (spec.computations, "computations"), (spec.sinks, "sinks"))
    return ", ".join(f"{len(part)} {word}" for part, word in parts)
