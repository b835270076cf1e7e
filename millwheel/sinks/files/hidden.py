"""The names of a sink's hidden files: built here, and read here by the owner that sweeps them.

``part-<shard>-<number>-<token>-<counter>.tmp``: the token identifies the owner of a file, even after that owner has
gone.
"""

from __future__ import annotations

import re

from millwheel.core.model.lease import Lease


def hidden_name(shard: str, number: int, attempt: str) -> str:
    """The file of one attempt (``<token>-<counter>``) at a batch."""
    return f"part-{shard}-{number:08d}-{attempt}.tmp"


def left_behind(names: list[str], shard: str, token: int) -> list[str]:
    """The hidden files of the former owners of a shard.

    Files of newer owners stay: we may be the zombie, and they may be about to publish them.
    """
    ours, lease = re.compile(rf"part-{re.escape(shard)}-\d+-(\d+)-[^.]*\.tmp"), Lease(token)
    found = ((name, ours.fullmatch(name)) for name in names)
    return [name for name, parts in found if parts and lease.outlived(int(parts[1]))]
