"""Deaths of workers that ended of themselves, noted in the root for the next owners of their
shards.

The driver learns how each worker has ended, wherever it ran, and what it was doing. A kill from
outside, a lost host or a lost lease is no death of this kind, so it never costs a record."""

from __future__ import annotations

from collections.abc import Callable

from millwheel.adapters.processes.exits import crash_line
from millwheel.adapters.processes.restarts import ended_of_itself, exit_words
from millwheel.adapters.spaces.hang_notes import HangNotes
from millwheel.engine.workers.bundle.hangs import Hang, encode_hang
from millwheel.engine.workers.bundle.work_note import running
from millwheel.errors import MillwheelError
from millwheel.launch.launchers.base import WorkerExit


class Deaths:
    """Writes the notes. ``say`` gets a sentence about each record that was alone in progress."""

    def __init__(self, notes: HangNotes, say: Callable[[str], None]) -> None:
        self._notes = notes
        self._say = say

    def ended(self, exit: WorkerExit) -> bool:
        """A worker has ended. True if a single record is known to have ended it: the next one gets
        further."""
        doing = running(exit.remains.doing)
        if doing is None or not ended_of_itself(exit.code, exit.remains.lacked_memory):
            return False
        words, where = exit_words(exit.code), crash_line(exit.last_words)
        # Not the note's own shard alone: it may be split or merged before the note is read.
        hang = Hang(
            doing.node, doing.shard, doing.token, doing.what, doing.key, doing.mark, where,
            ended=words,
            records=doing.records, lo=doing.lo, hi=doing.hi,
        )  # fmt: skip
        try:
            self._notes.write(doing.node, encode_hang(hang))
        except MillwheelError as ex:  # the next death is noted
            self._say(f"The death of worker {exit.slot} could not be noted: {ex}")
            return False
        if doing.mark:
            self._say(
                f"The worker {exit.slot} {words} on a {doing.what} of key {doing.key} of"
                f" {doing.node}."
            )
        return bool(doing.mark)
