"""Collects all errors of a pipeline file, so that the user sees them at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from millwheel.errors import PipelineError
from millwheel.language.spec.reading.nodes import ForeignLine

MAX_SHOWN = 50
"""The most problems that are shown; the others are only counted."""


@dataclass(slots=True)
class Problems:
    """Problems and warnings of one file, in the order in which they were found. ``found`` maps
    sentences to their lines; ``paths`` are the fields concerned."""

    file: str
    found: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)

    def add(self, line: int, path: str, text: str) -> None:
        """Add a problem that prevents the pipeline from running. Of several problems with one value
        only the first is kept, because the others usually follow from it."""
        if path and path in self.paths:
            return
        self.found.setdefault(self._sentence(line, path, text), line)
        self.paths.add(path)

    def warn(self, line: int, path: str, text: str) -> None:
        """Add a warning about something that can run but is probably unintended."""
        self.warnings.append(self._sentence(line, path, text))

    def concerns(self, path: str) -> bool:
        """True if there is a problem at ``path`` or below it."""
        return any(each == path or each.startswith((f"{path}.", f"{path}[")) for each in self.paths)

    def error(self) -> PipelineError:
        """All problems, by line, as one error."""
        ordered = sorted(self.found, key=lambda sentence: self.found[sentence])
        if len(ordered) > MAX_SHOWN:
            ordered[MAX_SHOWN:] = [f"{self.file}: … and {len(ordered) - MAX_SHOWN} more problems"]
        return PipelineError(*ordered)

    def at(self, line: int) -> str:
        """File and line."""
        return f"{line.file if isinstance(line, ForeignLine) else self.file}:{line:d}"

    def _sentence(self, line: int, path: str, text: str) -> str:
        return f"{self.at(line)}: {path}: {text}" if path else f"{self.at(line)}: {text}"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``; did you mean 'sum'?`` if a valid name is similar, else nothing."""
    names = list(choices)
    close = get_close_matches(word, names, 1, 0.6) or [
        name for name in names if name.lower() == word.lower()
    ]
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown(what: str, name: str, choices: Sequence[str], listed: str = "Known") -> str:
    """``unknown function 'summ'; did you mean 'sum'? Known: count, mean, sum``."""
    hint = did_you_mean(name, choices) or "."
    return f"unknown {what} {name!r:.80}{hint} {listed}: {', '.join(choices) or 'none'}"
