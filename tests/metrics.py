"""The table of metrics in docs/metrics.md, from the catalogue.

python -m tests.metrics   # write it
"""

from __future__ import annotations

import re

from millwheel.core.metrics.catalogue import OF_PROCESS
from tests import rooms

PAGE = rooms.HOUSE / "docs" / "metrics.md"
_BEGIN, _END = "<!-- metrics -->", "<!-- end of the metrics -->"


def table() -> str:
    """Every metric, by the process that has it."""
    lines = ["| metric | type | labels | meaning | process |", "|---|---|---|---|---|"]
    for process, metrics in OF_PROCESS.items():
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(
                f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.meaning} |"
                f" {process} |"
            )
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with the table as it is to be."""
    return re.sub(
        f"{_BEGIN}.*{_END}", lambda _: f"{_BEGIN}\n\n{table()}\n\n{_END}", text, flags=re.DOTALL
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
