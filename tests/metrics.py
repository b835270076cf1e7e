"""The tables of metrics, from the catalogue, as the docs site has them in docs/metrics.md.

python -m tests.metrics   # print them
"""

from __future__ import annotations

from collections.abc import Sequence

from millwheel.core.metrics import OF_PROCESS, Metric
from tests import rooms

PAGE = rooms.HOUSE / "docs" / "metrics.md"
PLACE = "<!-- metrics -->"


_OF_SHARD = ("computation", "shard")


def tables() -> str:
    """Every metric, by the process that has it, those of a shard apart."""
    parts = []
    for process, metrics in OF_PROCESS.items():
        of_shards = [each for each in metrics if each.labels[:2] == _OF_SHARD]
        others = [each for each in metrics if each not in of_shards]
        parts += [_table(f"{process}, for each shard", of_shards)] if of_shards else []
        parts += [_table(process, others)] if others else []
    return "\n\n".join(parts)


def _table(title: str, metrics: Sequence[Metric]) -> str:
    head = "| metric | type | meaning |\n|---|---|---|"
    lines = [f"**{title[0].upper()}{title[1:]}**\n", head]
    for metric in metrics:
        own = metric.labels[2:] if metric.labels[:2] == _OF_SHARD else metric.labels
        labels = f" (by {', '.join(f'`{label}`' for label in own)})" if own else ""
        lines.append(f"| `{metric.name}`{labels} | {metric.kind.value} | {metric.meaning} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(tables())
