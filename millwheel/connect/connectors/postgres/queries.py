"""Queries as people write them: comments, text with semicolons in it, and a semicolon at the
end."""

from __future__ import annotations

import re

_PARTS = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<text>[eE]'(?:\\.|''|[^'\\])*' | '(?:''|[^'])*' | "(?:""|[^"])*" |
      \$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<end>;)
    | (?P<other>\w+|.)
    """,
    re.VERBOSE | re.DOTALL,
)


def one_query(text: str) -> str:
    """A query without the semicolon at its end. Raises ValueError, with a sentence, for several
    statements or none."""
    end: int | None = None
    anything = False
    for part in _PARTS.finditer(text):
        kind = part.lastgroup
        if kind == "space":
            continue
        if kind == "end":
            end = part.start() if end is None else end
        elif end is not None:
            raise ValueError("option 'query' is more than one statement; write one select")
        else:
            anything = True
    if not anything:
        raise ValueError("option 'query' has no statement; write one select")
    return text[:end]
