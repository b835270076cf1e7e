"""The shown state of a run. The follower replaces it piece by piece; other threads read it."""

from __future__ import annotations

import threading

from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.tools.ui.documents import LiveRun
from millwheel.tools.ui.layout import Drawing, drawing_of
from millwheel.tools.ui.timeline import Timeline


class Shown:
    """``drawing``, ``live`` and the events of ``timeline`` are replaced, never changed; ``version``
    counts the replacements."""

    def __init__(self, spec: PipelineSpec, live: LiveRun) -> None:
        self.spec = spec
        self.drawing: Drawing = drawing_of(spec)
        self.live = live
        self.timeline = Timeline()
        self.version = 0
        self._changed = threading.Condition()

    def begin(self, spec: PipelineSpec) -> None:
        """Begin anew after a restart of the run, perhaps with another pipeline. The time line
        continues."""
        self.spec, self.drawing = spec, drawing_of(spec)
        events, self.timeline = self.timeline.events, Timeline()
        self.timeline.events = events

    def show(self, live: LiveRun) -> None:
        """Replace the live state of the run."""
        self.live = live
        self.notify()

    def notify(self) -> None:
        """Count a replacement and wake the waiting threads."""
        with self._changed:
            self.version += 1
            self._changed.notify_all()

    def since(self, earliest_ms: int, patience_s: float) -> bool:
        """Whether the live state is from ``earliest_ms`` or later (wall clock). Waits for such a
        one, at most for ``patience_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: self.live.at_ms >= earliest_ms, patience_s)

    def after(self, version: int, patience_s: float) -> int:
        """The number of the newest state. Waits for one after ``version``, at most until the
        timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self.version > version, patience_s)
            return self.version
