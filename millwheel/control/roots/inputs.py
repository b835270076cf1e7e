"""The partitions of bounded sources: listed once, when a root is new, and kept for every later run
on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from millwheel.connect.kinds import build_source
from millwheel.connect.sources.base import ENDS, Partition
from millwheel.control.roots.root import write_atomically
from millwheel.core.model.damage import DAMAGE
from millwheel.core.pipeline.spec import PipelineSpec, StreamSpec
from millwheel.errors import SetupError

_MOST_BYTES = 256 << 20  # of a list that a savepoint brings: millions of names
# bytes of a name there: paths have 4,096 at most, and some are written in escapes
_LONGEST_NAME = 8_192


def keep_inputs(spec: PipelineSpec, root: Path) -> bool:
    """Write ``inputs/<stream>.json`` for each bounded source that has none yet; True if all sources
    are bounded."""
    folder = root / "inputs"
    folder.mkdir(exist_ok=True)
    bounded = True
    for stream, partitions in _bounded(spec).items():
        if partitions is None:
            bounded = False
        elif not (folder / f"{stream}.json").exists():
            write_atomically(folder / f"{stream}.json", msgspec.json.encode(partitions))
    return bounded


def keep_ends(spec: PipelineSpec, root: Path) -> bool:
    """Write ``inputs/<stream>.ends.json`` for each unbounded source: its present partitions and
    their ends. Returns False and writes nothing when all sources end by themselves.

    Raises SetupError for a source without an end that could be reached."""
    forget_ends(root)
    ends: dict[str, Sequence[Partition]] = {}
    for stream in spec.streams:
        if stream.source is not None and stream.source.kind == "injection":
            ends[stream.name] = ()
        elif (
            stream.source is not None
            and not (source := build_source(stream.source, spec.folder)).bounded
        ):
            ends[stream.name] = source.ends()
    for name, partitions in ends.items():
        write_atomically(ends_file(root, name), msgspec.json.encode(partitions))
    return bool(ends)


def forget_ends(root: Path) -> None:
    """Remove the ends that an earlier run has found: this run goes beyond them."""
    for path in (root / "inputs").glob(f"*{ENDS}"):
        path.unlink()


def has_ends(root: Path) -> bool:
    """Whether the run on a root ends once it has caught up."""
    return any((root / "inputs").glob(f"*{ENDS}"))


def ends_file(root: Path, stream: str) -> Path:
    """The file with the ends of a stream's partitions, for a run that ends once it has caught
    up."""
    return root / "inputs" / f"{stream}{ENDS}"


def changed_inputs(spec: PipelineSpec, root: Path) -> list[str]:
    """One sentence for each bounded source whose input differs from that of the new root."""
    sentences = []
    for stream, partitions in _bounded(spec).items():
        former = _kept(root / "inputs" / f"{stream}.json")
        if partitions is None or former is None:
            continue
        now, then = {part.name for part in partitions}, {part.name for part in former}
        if now != then:
            example = sorted(now ^ then)[0]
            sentences.append(
                f"the source of {stream!r} had {len(then)} partitions when the root was new and has"
                f" {len(now)} now (for example {example}"
                f" {'was added' if example in now else 'is gone'})"
            )
    return sentences


def brought_inputs(stream: StreamSpec, folder: str, path: Path) -> bytes:
    """The list of a bounded source that a savepoint brings, which may come from anybody: it can
    name nothing that the source could not have listed. Raises SetupError if it does, or is
    damaged."""
    if path.stat().st_size > _MOST_BYTES:
        raise SetupError(
            f"{path} has more than {_MOST_BYTES >> 20} MiB, which no list of inputs has; remove it"
        )
    names = [partition.name for partition in _kept(path) or ()]
    source = None if stream.source is None else build_source(stream.source, folder)
    for name in names:
        if (
            not name
            or "\0" in name
            or len(name) > _LONGEST_NAME
            or not (source is None or source.fits(name))
        ):
            raise SetupError(
                f"{path} names the input {name[:200]!r}, which the source of"
                f" {stream.name!r} does not read: take the savepoint from where it was made, or"
                " let the pipeline name that input"
            )
    if len(set(names)) < len(names):
        raise SetupError(f"{path} names an input twice: take the savepoint from where it was made")
    return path.read_bytes()


def _bounded(spec: PipelineSpec) -> dict[str, Sequence[Partition] | None]:
    """By stream: the present partitions of a bounded source; None for an unbounded source."""
    partitions: dict[str, Sequence[Partition] | None] = {}
    for stream in spec.streams:
        if stream.source is not None and stream.source.kind == "injection":
            partitions[stream.name] = (
                None  # it has nothing to list: its records are sent to the workers
            )
        elif stream.source is not None:
            source = build_source(stream.source, spec.folder)
            if not source.bounded:
                source.check()
            partitions[stream.name] = source.partitions() if source.bounded else None
    return partitions


def _kept(path: Path) -> list[Partition] | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Partition])
    except FileNotFoundError:
        return None
    except DAMAGE as error:
        raise SetupError(
            f"{path} is damaged ({error}): the root cannot be trusted; use another one"
        ) from error
