"""``--fresh``: empty a root, remove the results that belong to it, and begin anew. Its folder must
hold nothing that does not belong to this root."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from millwheel.adapters.processes.address import EMBEDDED
from millwheel.adapters.spaces.root_address import in_bucket
from millwheel.connect.kinds import build_sink
from millwheel.connect.own_functions import expressions_in, language_of
from millwheel.connect.sinks.base import Sink
from millwheel.control.roots.root import Root, identity_of
from millwheel.control.roots.shipping import load_shipped
from millwheel.control.savepoints.upgrade import kept_blueprint
from millwheel.core.model.damage import DAMAGE
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import MillwheelError, SetupError

_GLOB = "*?["


def begin_afresh(
    root: Root,
    spec: PipelineSpec,
    from_savepoint: str,
    zookeeper: str,
    announce: Callable[[str], None],
) -> None:
    """Make the root of a former run, which nobody else can be using while we hold it, a new one.

    Raises SetupError where that cannot be done; then nothing was removed."""
    if in_bucket(root.address):
        raise SetupError(
            f"--fresh empties folders only; remove {root.address} yourself, or give a new --root"
        )
    if from_savepoint:
        raise SetupError(
            "--fresh begins without a state, and --from-savepoint with one; leave one of them out"
        )
    if zookeeper not in ("", EMBEDDED):
        raise SetupError(
            f"--fresh cannot empty ZooKeeper at {zookeeper}; give another chroot and a new --root"
            " instead"
        )
    if kept_blueprint(root.path) is None and not root.used():
        return
    refuse_foreign(root, _needed(spec))
    for name, sink in _sinks(root, spec):
        if remains := sink.discard(str(root.identity)):
            announce(f"{name}: {remains}.")
    root.empty()
    announce(
        f"The root {root.address} and the results that belonged to it are removed: this run begins"
        " anew."
    )


def _sinks(root: Root, spec: PipelineSpec) -> Iterator[tuple[str, Sink]]:
    """The sinks of the former pipeline, if it can still be read, and those of the new one: each
    target once."""
    specs = [(spec, language_of(spec))]
    with suppress(MillwheelError):  # its code may have been corrected
        former = load_shipped(str(root.path))
        specs.insert(0, (former, language_of(former)))
    seen: list[Any] = []
    for each, language in specs:
        for sink in each.sinks:
            target = (sink.kind, dict(sink.options))
            if target not in seen:
                seen.append(target)
                with suppress(ValueError):
                    with expressions_in(language):
                        built = build_sink(sink, each.folder)
                    yield f"sinks.{sink.stream}.{sink.kind}", built


def _needed(spec: PipelineSpec) -> Iterator[Path]:
    """The folders that the new run reads."""
    yield Path(spec.folder)
    for stream in spec.streams:
        path = stream.source.options.get("path") if stream.source is not None else None
        if isinstance(path, str) and "://" not in path:
            plain = Path(spec.folder, path)
            while any(sign in str(plain) for sign in _GLOB):
                plain = plain.parent
            yield plain


_RESULTS_OF = ".millwheel/results-of"


def refuse_foreign(root: Root, needed: Iterable[Path]) -> None:
    """Raise SetupError if the folder of a root holds anything foreign: the root or the results of
    another run, or one of the paths ``needed`` by the new one."""
    top = root.path.resolve()
    for path in needed:
        if path.resolve().is_relative_to(top):
            raise SetupError(
                f"{path} lies in the root {top}, which would be emptied; give a new --root"
            )
    for folder in _folders(top):
        other = identity_of(str(folder)) if folder != top else ""
        other = other or _owner_of_results(folder)
        if other and other != str(root.identity):
            raise SetupError(
                f"{folder} in the root {top} belongs to another run ({other}); move it out of the"
                " root"
            )


def _folders(top: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(top):
        yield Path(folder)


def _owner_of_results(folder: Path) -> str:
    try:
        return (folder / _RESULTS_OF).read_text()
    except (OSError, *DAMAGE):
        return ""
