"""Transcripts of machines: a text of commands, each followed by what the machine did because of it.

    == A title
    # why it is so
    command with words
    > an effect
    > another one

A command without effects has none below it. Empty lines and comments are for readers, and stay when
``pytest --rewrite`` puts in what did happen. Each title begins with a new machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

FOLDER = Path(__file__).parent / "machines"
_TITLE, _EFFECT = "== ", "> "


class Machine(Protocol):
    """A machine that understands the commands of its transcripts."""

    def do(self, command: str, words: list[str]) -> list[str]:
        """The effects of a command, one a line."""


@dataclass(frozen=True, slots=True)
class Story:
    """One part of a file, from its title on."""

    path: Path
    title: str

    @property
    def text(self) -> list[str]:
        """Its lines, as the file has them at the moment."""
        lines = self.path.read_text().splitlines()
        start = lines.index(_TITLE + self.title)
        ends = (at for at in range(start + 1, len(lines)) if lines[at].startswith(_TITLE))
        return lines[start : next(ends, len(lines))]

    def played(self, machine: Machine) -> Iterator[str]:
        """The text with the effects that the machine has."""
        for line in self.text:
            if line.startswith(_EFFECT):
                continue
            yield line
            if line and not line.startswith(("#", _TITLE)):
                command, *words = line.split()
                yield from (_EFFECT + effect for effect in machine.do(command, words))


def stories(name: str) -> list[Story]:
    """The stories of one machine, from all files with its name."""
    found: list[Story] = []
    for path in sorted(FOLDER.glob(f"{name}*.txt")):
        lines = path.read_text().splitlines()
        titles = [line.removeprefix(_TITLE) for line in lines if line.startswith(_TITLE)]
        assert len(set(titles)) == len(titles) > 0, f"{path}: each story has a title of its own"
        found += [Story(path, title) for title in titles]
    return found


def check(story: Story, machine: Machine) -> None:
    """AssertionError names the first line that differs."""
    text, played = story.text, list(story.played(machine))
    for number, (line, now) in enumerate(zip_longest(text, played, fillvalue="the end")):
        where = f"{story.path.name}, {story.title!r}, line {number + 1}"
        assert line == now, f"{where}: the transcript has {line!r}, the machine {now!r}"


def rewrite(name: str, made: Callable[[], Machine]) -> None:
    """Put what happens into the files."""
    texts: dict[Path, list[str]] = {}
    for story in stories(name):
        head = story.path.read_text().split(_TITLE)[0].splitlines()
        texts.setdefault(story.path, head).extend(story.played(made()))
    for path, lines in texts.items():
        path.write_text("\n".join(lines) + "\n")
