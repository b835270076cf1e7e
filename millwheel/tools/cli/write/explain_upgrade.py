"""``millwheel explain-upgrade``: whether the state of one pipeline fits another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from millwheel.control.roots.shipping import with_defaults
from millwheel.control.savepoints.blueprint import Blueprint, blueprint_of
from millwheel.control.savepoints.compatibility import Change, compare, worst
from millwheel.control.savepoints.record import RECORD_FILE, read_record
from millwheel.control.savepoints.rules import Compatibility
from millwheel.control.savepoints.upgrade import kept_blueprint
from millwheel.errors import SetupError
from millwheel.language.spec import load_pipeline, resolve_params
from millwheel.language.spec.parameters import stand_ins
from millwheel.language.spec.pipelines import read_document
from millwheel.tools.cli.look.status import write_json

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
