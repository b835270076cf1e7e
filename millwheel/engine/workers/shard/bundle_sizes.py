"""How much a bundle takes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from millwheel.core.columns.few import FEW_RECORDS
from millwheel.core.model.limits import DEFAULTS, Limits
from millwheel.engine.workers.delivery.combining import CombineLimits


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """The limits of a shard's memory and of the size of its commits, in records of up to 1 kB: a
    larger one counts as several. ``given`` are the pipeline's own limits. Sources commit their
    positions every ``settle_us``, since that costs as much for one read as for many; the rest is
    read again after a crash. A commit that nothing waits for (weak productions and reads of a
    source are sent before it) is delayed by up to ``company_us``, to be written with others.
    ``combine``: when groups are sent in place of records. Of reads of ``columns_from`` records and
    more, sources make columns for the consumers that take them; fewer are as quick one by one.
    Aggregations group bundles of less than ``rows_below`` records in rows."""

    bundle: int = 20_000
    timers: int = 5_000
    window: int = 40_000
    pending: int = 100_000
    in_flight: int = 4
    weak_in_flight: int = 64
    straggler_us: int = 1_000_000
    settle_us: int = 20_000
    company_us: int = 20_000
    combine: CombineLimits = field(default_factory=CombineLimits)
    columns_from: int = 1_000
    rows_below: int = FEW_RECORDS
    given: Limits = DEFAULTS


class BundleSize:
    """Where little input makes much output, bundles take less, so that no commit is far too large.
    All numbers are weights; ``most`` is the limit of the next bundle."""

    def __init__(self, bundle: int) -> None:
        self._bundle = bundle
        self.most = bundle

    def learn(self, input_weight: int, output_weight: int) -> None:
        """Note the input and output of a bundle."""
        if output_weight > self._bundle and output_weight > input_weight:
            self.most = max(input_weight * self._bundle // output_weight, 1)
        elif input_weight and self.most < self._bundle:
            self.most = min(self.most * 2, self._bundle)
