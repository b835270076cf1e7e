"""What has stood still for ten seconds: of what a look at a run finds, that which earlier looks
have found. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import msgspec

from millwheel.adapters.waits import TELL_AFTER_S
from millwheel.launch.standing.run_standing import RunStanding, troubles_of

MOST = 5
"""The most reasons that are reported at once."""


class Lasting:
    """Compares looks at one run. A node whose watermark moves is behind, but does not stand
    still."""

    def __init__(self) -> None:
        self._since_s: dict[Hashable, float] = {}

    def look(self, run: RunStanding, now_s: float) -> tuple[str, ...]:
        """The reasons at ``now_s``, the gravest first."""
        workers = [msgspec.structs.replace(each, slowness=1.0, memory=0.0) for each in run.workers]
        stuck = [worker for worker in workers if any(troubles_of((), [worker]))]
        held = [node for node in run.nodes if any(troubles_of([node], ()))]
        seen: dict[Hashable, float] = {
            ("worker", each.worker, each.answers): now_s for each in stuck
        }
        seen |= {("node", each.node, each.watermark_us): now_s for each in held}
        if not run.workers:
            seen["no worker"] = now_s
        self._since_s = {key: self._since_s.get(key, now_s) for key in seen}
        lasts = {key for key, since_s in self._since_s.items() if now_s - since_s >= TELL_AFTER_S}
        nodes = [each for each in held if ("node", each.node, each.watermark_us) in lasts]
        reasons = [
            *(wait.in_words() for wait in run.waits),
            *run.deaths,
            *(["no worker has joined"] if "no worker" in lasts else []),
            *troubles_of(
                nodes, [each for each in stuck if ("worker", each.worker, each.answers) in lasts]
            ),
        ]
        return tuple(_first(reasons))


def _first(reasons: list[str]) -> Iterator[str]:
    yield from reasons[:MOST]
    if len(reasons) > MOST:
        yield f"and {len(reasons) - MOST} more: see millwheel status"
