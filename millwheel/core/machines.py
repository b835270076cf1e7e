"""Which machine serves which windows, and what cannot be combined."""

from __future__ import annotations

from millwheel.core.aggregation import Aggregation
from millwheel.core.session_machine import MergingMachine
from millwheel.core.window_machine import AlignedMachine
from millwheel.core.windowing import Machine, Windowing
from millwheel.core.windows import Custom, Sessions


def make_machine(windowing: Windowing, aggregation: Aggregation) -> Machine:
    """The machine for a windowing. ValueError, with the fix, for combinations that cannot work."""
    window = windowing.window
    if isinstance(window, (Sessions, Custom)) and window.merging:
        return MergingMachine(windowing, aggregation, window)
    return AlignedMachine(windowing, aggregation)
