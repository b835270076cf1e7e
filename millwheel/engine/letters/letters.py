"""Dead letters in files: read, grouped, and selected for a retry."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from millwheel.adapters.spaces.object_address import local_path
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.failures import kind_of
from millwheel.core.pipeline.replays import KEY, LINE, RECORD, Past, RequestedLetter
from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec
from millwheel.errors import CorruptionError, SetupError


class Letter(msgspec.Struct):
    """A dead letter. ``id`` names its file and line, which never change; ``written_s`` is when that
    file was written."""

    computation: str
    reason: str
    stream: str = ""
    key: Any = None
    value: Any = None
    timestamp: int | None = None
    exception: str = ""
    location: str = ""
    attempts: int = 0
    position: str = ""
    error: str = ""
    what: str = ""
    raw: str = ""
    history: list[Past] = []
    id: str = ""
    written_s: float = 0.0

    @property
    def kind(self) -> str:
        """The kind under which it is counted."""
        return kind_of(self.error, self.location, self.reason)

    @property
    def again(self) -> str:
        """The part of it that can be tried again ("": none)."""
        if self.what == RECORD and self.stream and self.timestamp is not None:
            return RECORD
        if self.what.startswith("key of ") and self.timestamp is not None:
            return KEY
        return LINE if self.what == LINE and self.computation.startswith("source.") else ""

    def wanted(self) -> RequestedLetter:
        """The letter in the form in which a request names it."""
        key, value = (
            msgspec.msgpack.decode(b64decode(self.raw)) if self.raw else (self.key, self.value)
        )
        history = [*self.history, Past(self.reason, self.attempts, self.id)]
        return RequestedLetter(
            self.id, self.computation, self.stream, self.again, key, self.timestamp, value, history
        )

    def matches(self, computation: str, reason: str) -> bool:
        """Whether it is a letter of ``computation`` ("": of any) with ``reason`` in its reason or
        kind."""
        if computation and self.computation not in (computation, f"source.{computation}"):
            return False
        return reason in self.reason or reason in self.kind


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Letters of one computation and kind: how many, for how many of them a retry was requested,
    when the first and the last were written (s since 1970), and one example."""

    computation: str
    kind: str
    count: int
    replayed: int
    first_s: float
    last_s: float
    example: Letter


def letters_folder(spec: PipelineSpec, root: Path) -> Path:
    """The folder of a pipeline's letters. Raises SetupError when they are not in files that can be
    read back."""
    sink = next((sink for sink in spec.sinks if sink.stream == DEAD_LETTERS), None)
    if sink is None:
        return root / DEAD_LETTERS
    if sink.kind != "files" or sink.options.get("format", "jsonl") != "jsonl":
        raise SetupError(
            f"The dead letters of {spec.name} go to a sink of the kind {sink.kind!r}, whose results"
            " cannot be read back: use the default sink, or {files: {format: jsonl}}"
        )
    path = local_path(str(sink.options["path"]))
    if "://" in path or sink.options.get("partition_by"):
        raise SetupError(
            f"The dead letters of {spec.name} go to {path}, from where they cannot be read back:"
            " use a plain folder"
        )
    return Path(spec.folder, path)


def replayable(row: Any, name: str) -> Letter:
    """A letter as it would be read from a file."""
    letter = msgspec.json.decode(msgspec.json.encode(row), type=Letter)
    letter.id = name
    return letter


def read_letters(folder: Path) -> Iterator[Letter]:
    """All letters that are visible, in the order of their files."""
    for path in sorted(folder.glob("*.jsonl")):
        written_s = path.stat().st_mtime
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                letter = msgspec.json.decode(line, type=Letter)
            except DAMAGE as error:
                raise CorruptionError(f"{path}:{number} is no dead letter: {error}") from error
            letter.id, letter.written_s = f"{path.name}:{number}", written_s
            yield letter


def grouped(letters: Iterable[Letter], requested_ids: frozenset[str]) -> list[LetterGroup]:
    """Letters by computation and kind, the largest groups first. ``requested_ids`` are the ids of
    letters whose retry was requested."""
    by_kind: dict[tuple[str, str], list[Letter]] = {}
    for letter in letters:
        by_kind.setdefault((letter.computation, letter.kind), []).append(letter)
    groups = [
        LetterGroup(
            computation,
            kind,
            len(members),
            sum(letter.id in requested_ids for letter in members),
            min(letter.written_s for letter in members),
            max(letter.written_s for letter in members),
            members[0],
        )
        for (computation, kind), members in by_kind.items()
    ]
    return sorted(groups, key=lambda group: (-group.count, group.computation, group.kind))
