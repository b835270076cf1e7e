"""The aggregate functions, as docs/pipeline.md lists them: each says of itself what it gives and
keeps.

python -m tests.aggregate_table           # print it
python -m tests.aggregate_table --write   # write it into docs/pipeline.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from millwheel.core.aggregates.functions import FUNCTIONS

PAGE = Path(__file__).parents[1] / "docs" / "pipeline.md"
_HEAD = "| function | result | state per key and window |\n|---|---|---|\n"
_OWN = (
    "| `module:Class` | your own `Aggregator`; other options go to its constructor | decided by the"
    " class |"
)


def table() -> str:
    """The table. Functions that say the same share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, function in FUNCTIONS.items():
        rows.setdefault((function.gives, function.keeps), []).append(f"`{name}`")
    lines = [
        f"| {', '.join(names)} | {gives} | {keeps} |" for (gives, keeps), names in rows.items()
    ]
    return _HEAD + "\n".join([*lines, _OWN])


def page_with(text: str) -> str:
    """The page with ``text`` as its table."""
    page = PAGE.read_text(encoding="utf-8")
    return re.sub(rf"{re.escape(_HEAD)}.*?{re.escape(_OWN)}", lambda _: text, page, flags=re.DOTALL)


def main() -> None:
    if "--write" in sys.argv:
        PAGE.write_text(page_with(table()), encoding="utf-8")
    else:
        print(table())


if __name__ == "__main__":
    main()
