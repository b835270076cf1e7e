"""The order of callbacks, from their code: whether they set timers, and take records together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millwheel.api import Computation, sets_timers, takes_batches
from millwheel.core.pipeline.spec import ComputationSpec


class LoadedCode:
    """See :class:`millwheel.core.order.labels.CallbackCode`. ``load`` returns the object that
    ``module:name`` names."""

    def __init__(self, load: Callable[[str], Any]) -> None:
        self._load = load

    def sets_timers(self, spec: ComputationSpec) -> bool:
        """False where the class has no ``process_timer``."""
        return spec.called is not None and sets_timers(self._load(spec.called.callback))

    def takes_batches(self, spec: ComputationSpec) -> bool:
        """True where the class has a ``process_batch``."""
        kind = self._load(spec.called.callback) if spec.called is not None else None
        return isinstance(kind, type) and issubclass(kind, Computation) and takes_batches(kind)
