"""What Spark has given a run: cores for its workers, or the reason for which it has not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext


class Cores:
    """The tasks of one application, which are its workers. Asked now and then, on any thread."""

    def __init__(self, context: SparkContext, master: str) -> None:
        self._context = context
        self._master = master

    def missing(self, workers: int) -> str:
        """The workers that have no core yet, and why, of so many that have been started; "" when
        all have one."""
        try:
            running, executors = self._running(), self._executors()
        except Exception:  # an application that is ending; its jobs report that
            return ""
        return (
            waiting(running, workers, executors, self._master, self._demand())
            if running < workers
            else ""
        )

    def _running(self) -> int:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)

    def _executors(self) -> int:
        """Those that are registered; Spark counts the driver among them."""
        tracker: Any = self._context._jsc.sc().statusTracker()
        return max(len(tracker.getExecutorInfos()) - 1, 0)

    def _demand(self) -> str:
        conf = self._context.getConf()
        cores, memory = (
            conf.get("spark.executor.cores", "1"),
            conf.get("spark.executor.memory", "1g"),
        )
        return f"{cores} core{'s' if cores != '1' else ''} and {memory} of memory"


def waiting(running: int, workers: int, executors: int, master: str, demand: str) -> str:
    """The sentence for ``running`` of ``workers`` workers that have a core."""
    sentence = f"Spark has given {running} of {workers} workers a core"
    if executors >= workers:
        return f"{sentence}: its {executors} executors have not begun their tasks yet"
    if executors > running:
        return f"{sentence}; it has started {executors} executors so far"
    return (
        f"{sentence}: no machine of {master} has {demand} free for another executor. Other"
        " applications may hold them, or spark.cores.max may be less than the workers need"
    )
