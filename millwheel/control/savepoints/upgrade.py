"""Compares a pipeline with the state that another one left: reports the differences, and refuses
incompatible ones.

A computation that has failed on every record has no state in the form of its settings, neither
windows nor groups on their way to them, and may be corrected on its root. The journals of the root,
which are not in use then, show whether it has any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from millwheel.adapters.durable_store import open_journals, open_snapshots
from millwheel.control.roots.shipping import BLUEPRINT_FILE
from millwheel.control.savepoints.blueprint import Blueprint, blueprint_of
from millwheel.control.savepoints.compatibility import Change, compare, corrected, worst
from millwheel.control.savepoints.program import changed_parts, program_of
from millwheel.control.savepoints.rules import Compatibility
from millwheel.core.formats import store_layout as layout
from millwheel.core.formats.codec import FULL_STOP, Commit, decode_batch
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.names import groups_of, shard_parts
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import MillwheelError, PipelineError, SetupError


def blueprint_bytes(spec: PipelineSpec) -> bytes:
    """The blueprint that is shipped with a pipeline, for a later run to compare."""
    return msgspec.json.encode(
        msgspec.structs.replace(blueprint_of(spec), program=program_of(spec))
    )


def kept_blueprint(root: Path) -> Blueprint | None:
    """The blueprint of the last run on the root; None for a new root."""
    file = root / "pipeline" / BLUEPRINT_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=Blueprint)
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGE) as error:
        raise SetupError(f"{file} cannot be read: {error}") from error


def check_same_root(root: Path, spec: PipelineSpec, announce: Callable[[str], None]) -> None:
    """Raises PipelineError unless the pipeline can continue with the root as it is, even with
    records in flight. Harmless differences are reported by ``announce``."""
    old = kept_blueprint(root)
    if old is None:
        return None
    changes = compare(old, blueprint_of(spec))
    if any(change.correctable for change in changes):
        changes = corrected(changes, may_keep_state(str(root)))
    verdict = worst(changes)
    if verdict is Compatibility.FREE:
        return _announce(changes, announce)
    heading = (
        f"{spec.file or spec.name} differs from the pipeline that the root {root} was run with:"
    )
    if verdict is Compatibility.REFUSED:
        fix = (
            "Undo the refused changes, or start without state: --fresh (in Python: fresh=True)"
            " removes this root and the results that belong to it, and a new --root with other"
            " output folders keeps them."
        )
    else:
        fix = (
            "This needs a savepoint: start the run as it was (if it fails at once, with on_error:"
            f" dead_letter for what fails), `millwheel stop --root {root} --savepoint FOLDER`, then"
            " `millwheel run` with --from-savepoint FOLDER and a new --root. Or undo the changes,"
            " or start over: --fresh (in Python: fresh=True) removes this root and the results"
            " that belong to it."
        )
    raise PipelineError("\n".join([heading, *_lines(changes), fix]))


def changed_since(root: Path, spec: PipelineSpec) -> list[str]:
    """How a pipeline differs from the one that a root was last run with, in lines; [] for the same
    program."""
    old = kept_blueprint(root)
    if old is None:
        return []
    changes = compare(old, blueprint_of(spec))
    if changes:
        return [f"  {change}" for change in changes]
    return [
        f"  changed: {name}" for name in changed_parts(old.program, program_of(spec)) if old.program
    ]


def check_savepoint(
    old: Blueprint, folder: Path, spec: PipelineSpec, announce: Callable[[str], None]
) -> None:
    """Raises PipelineError unless the pipeline can continue from a savepoint. Differences are
    reported by ``announce``."""
    changes = compare(old, blueprint_of(spec))
    if worst(changes) is Compatibility.REFUSED:
        refused = [change for change in changes if change.verdict is Compatibility.REFUSED]
        heading = f"{spec.file or spec.name} cannot continue from the savepoint {folder}:"
        fix = "`millwheel explain-upgrade SAVEPOINT PIPELINE` shows all differences."
        raise PipelineError("\n".join([heading, *_lines(refused), fix]))
    _announce(changes, announce)


def _announce(changes: list[Change], announce: Callable[[str], None]) -> None:
    for change in changes:
        announce(f"Changed: {change}.")


def _lines(changes: list[Change]) -> list[str]:
    return [f"  {change.verdict.value}: {change}" for change in changes]


_OF_EVERY_STORE = frozenset(
    (
        layout.META,
        layout.CHANNEL,
        layout.SEEN,
        layout.RUNS,
        layout.PENDING,
        layout.POSITION,
        layout.JUDGED,
        layout.ARRIVED,
    )
)
"""The groups that every store has."""
_GROUPS = groups_of("")
_commit = msgspec.msgpack.Decoder(Commit).decode


def may_keep_state(address: str) -> Callable[[str], bool]:
    """Whether a node of a root may keep data in the form of its settings. True in case of doubt."""
    try:
        nodes = _nodes_with_state(address)
    except (MillwheelError, *DAMAGE):  # a journal whose beginning is gone, for one
        return lambda node: True
    return nodes.__contains__


def _nodes_with_state(address: str) -> set[str]:
    snapshots = (shard_parts(shard) for shard in open_snapshots(address).shards())
    nodes = {str(parts[0]) for parts in snapshots if parts is not None}
    for commit in _commits(address):
        parts = shard_parts(commit.shard)
        for key, value in commit.puts:
            if key[:1] not in _OF_EVERY_STORE and parts is not None:
                nodes.add(str(parts[0]))
            if key[:1] == layout.PENDING:
                nodes.update(_grouped(value))
    return nodes


def _commits(address: str) -> Iterator[Commit]:
    """All commits of all workers. None of them lives: their journals are sealed, as by the next
    master."""
    journals = open_journals(address)
    for incarnation in journals.incarnations():
        for entry in journals.read(incarnation, journals.seal(incarnation)):
            if entry != FULL_STOP:
                yield _commit(entry)


def _grouped(pending: bytes) -> Iterator[str]:
    """The nodes to which groups are on their way in these productions."""
    for encoded in layout.decode_pending(pending).batches:
        stream = decode_batch(encoded).stream
        if stream.startswith(_GROUPS):
            yield stream.removeprefix(_GROUPS)
