"""The panels beside the graph: dead letters, savepoints, settings. Each request reads them from the
root."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from millwheel.adapters.redaction import redacted, redacted_text
from millwheel.adapters.spaces.root_notes import ReplayOrders
from millwheel.control.roots.attach import is_driven
from millwheel.control.roots.root import read_run
from millwheel.control.savepoints.record import NotedSavepoint, noted_savepoints
from millwheel.core.model.times import SECOND
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.engine.letters import (
    Letter,
    ask,
    asked_for,
    grouped,
    letters_folder,
    read_letters,
)
from millwheel.errors import SetupError

_NEWEST = 5  # letters of a group that are shown


class ShownLetter(msgspec.Struct, frozen=True):
    """A dead letter, shortened. ``again``: it can be replayed; ``replayed``: a replay was
    requested."""

    id: str
    reason: str
    stream: str
    key: str
    value: object
    timestamp_us: int | None
    exception: str
    location: str
    attempts: int
    again: bool
    replayed: bool


class ShownGroup(msgspec.Struct, frozen=True):
    """Letters of one computation with the same cause of failure. ``left`` can still be replayed.
    Times are in s since 1970."""

    computation: str
    kind: str
    count: int
    replayed: int
    left: int
    first_s: float
    last_s: float
    letters: tuple[ShownLetter, ...]


class ShownLetters(msgspec.Struct, frozen=True):
    """All groups, the largest first. ``problem`` is the reason why they cannot be shown ("": they
    can)."""

    groups: tuple[ShownGroup, ...] = ()
    problem: str = ""


class ShownSavepoint(msgspec.Struct, frozen=True):
    """A savepoint that was taken of this root, and whether it is still there."""

    savepoint: NotedSavepoint
    there: bool


class Setting(msgspec.Struct, frozen=True):
    """One line: the name of a setting, and its value in words."""

    name: str
    value: str


class Panels:
    """The panels of one root. ``address`` is the root as the user wrote it."""

    def __init__(self, address: str, root: Path, orders: ReplayOrders) -> None:
        self._address = address
        self._root = root
        self._orders = orders

    def letters(self, spec: PipelineSpec) -> ShownLetters:
        """The dead letters that are visible now."""
        try:
            letters = list(read_letters(letters_folder(spec, self._root)))
        except SetupError as ex:
            return ShownLetters(problem=str(ex))
        requested_ids = asked_for(self._orders)
        groups = []
        for group in grouped(letters, requested_ids):
            members = [
                each
                for each in letters
                if (each.computation, each.kind) == (group.computation, group.kind)
            ]
            remaining = sum(bool(each.again) and each.id not in requested_ids for each in members)
            shown = tuple(
                _shown(each, each.id in requested_ids) for each in members[: -_NEWEST - 1 : -1]
            )
            about = (group.count, group.replayed, remaining, group.first_s, group.last_s)
            groups.append(ShownGroup(group.computation, group.kind, *about, shown))
        return ShownLetters(tuple(groups))

    def replay(self, spec: PipelineSpec, computation: str, kind: str, letter: str) -> str:
        """Request a replay of a group, or of one ``letter`` of it (its id). Returns a sentence
        about the request. Raises SetupError when there is no such letter."""
        letters = list(read_letters(letters_folder(spec, self._root)))
        members = [each for each in letters if (each.computation, each.kind) == (computation, kind)]
        chosen = [each for each in members if not letter or each.id == letter]
        if not chosen:
            raise SetupError("There are no such dead letters any more: load the page again")
        count = ask(self._root, self._orders, chosen, None)
        return self._words(count, chosen)

    def _words(self, count: int, chosen: Sequence[Letter]) -> str:
        if not count:
            never = not any(each.again for each in chosen)
            return (
                "These dead letters cannot be tried again."
                if never
                else "All of them were asked for before."
            )
        when = "now" if is_driven(self._root) else "when the pipeline is run on this root again"
        return f"{count:,} dead {'letter is' if count == 1 else 'letters are'} tried again, {when}."

    def savepoints(self) -> list[ShownSavepoint]:
        """The savepoints of this root, the newest first."""
        return [ShownSavepoint(each, there) for each, there in noted_savepoints(self._root)]

    def settings(self, spec: PipelineSpec) -> list[Setting]:
        """The run's settings, without secrets."""
        limits = spec.limits
        pairs = [
            ("pipeline", spec.name),
            ("root", self._address),
            (
                "version",
                (
                    f"MillWheel {version('millwheel-spark')}, Python {platform.python_version()}"
                    " (of this page)"
                ),
            ),
            ("largest record", f"{limits.record:,} bytes"),
            ("largest key", f"{limits.key:,} bytes"),
            ("largest entry of state", f"{limits.state:,} bytes"),
            ("timers of a key", f"{limits.timers:,}"),
            ("productions in flight", f"{limits.in_flight:,} bytes of a shard"),
            (
                "longest call",
                "any" if limits.callback_us is None else f"{limits.callback_us / SECOND:g} s",
            ),
        ]
        if (run := read_run(self._root)) is not None:
            pairs += [
                ("coordinator", run.zookeeper),
                ("driver", f"process {run.driver_pid}"),
                ("security", run.security or "none: open to every user of this machine"),
            ]
        return [Setting(name, value) for name, value in pairs]


def _shown(letter: Letter, replayed: bool) -> ShownLetter:
    return ShownLetter(
        letter.id,
        str(redacted(letter.reason)),
        letter.stream,
        str(redacted(repr(letter.key))),
        redacted(letter.value),
        letter.timestamp,
        redacted_text(letter.exception),
        redacted_text(letter.location),
        letter.attempts,
        bool(letter.again),
        replayed,
    )
