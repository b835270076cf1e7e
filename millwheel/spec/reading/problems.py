"""Collects all errors of a pipeline file, so that the user sees them at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from millwheel.errors import PipelineError

MAX_SHOWN = 50
"""Problems that are reported at most; the rest is counted."""


@dataclass(slots=True)
class Problems:
    """Problems and warnings of one file, in the order they were found. ``found`` maps sentences to their lines;
    ``paths`` are the fields concerned."""

    file: str
    found: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)

    def add(self, line: int, path: str, text: str) -> None:
        """Something that must be changed before the pipeline can run. Of several problems of one value, the first is
        kept: the others mostly follow from it."""
        if path and path in self.paths:
            return
        self.found.setdefault(self._sentence(line, path, text), line)
        self.paths.add(path)

    def warn(self, line: int, path: str, text: str) -> None:
        """Something that runs, but is probably not meant."""
        self.warnings.append(self._sentence(line, path, text))

    def concerns(self, path: str) -> bool:
        """True when there is a problem at ``path`` or below it."""
        return any(known == path or known.startswith((f"{path}.", f"{path}[")) for known in self.paths)

    def error(self) -> PipelineError:
        """All problems, by line, as one error."""
        ordered = sorted(self.found, key=lambda sentence: self.found[sentence])
        if len(ordered) > MAX_SHOWN:
            ordered[MAX_SHOWN:] = [f"{self.file}: … and {len(ordered) - MAX_SHOWN} more problems"]
        return PipelineError(*ordered)

    def place(self, line: int) -> str:
        """File and line."""
        return f"{getattr(line, 'file', self.file)}:{line:d}"

    def _sentence(self, line: int, path: str, text: str) -> str:
        return f"{self.place(line)}: {path}: {text}" if path else f"{self.place(line)}: {text}"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """``; did you mean 'sum'?`` when something known is close to what was given, else nothing."""
    names = list(known)
    close = get_close_matches(given, names, 1, 0.6) or [name for name in names if name.lower() == given.lower()]
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown(what: str, given: str, known: Sequence[str], listed: str = "Known") -> str:
    """``unknown function 'summ'; did you mean 'sum'? Known: count, mean, sum``."""
    hint = did_you_mean(given, known) or "."
    return f"unknown {what} {given!r:.80}{hint} {listed}: {', '.join(known) or 'none'}"
