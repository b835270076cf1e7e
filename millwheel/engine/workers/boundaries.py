"""The boundaries around user code and around work in columns: which exceptions are whose failures.

Any exception that a user function raises concerns the record that it was called with, whether it
derives from Exception or not: ``sys.exit()``, a cancelled task, a failed allocation of memory, a
panic of a library in Rust. Only those that mean that this worker must not go on pass.

Work that fails in columns is done again record by record, which finds the record that it fails for,
if there is one. Only work that can be done again may be inside that boundary: nothing in there may
have changed anything that outlives the failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millwheel.connect.own_functions import FATAL, passes
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.model.damage import is_failure
from millwheel.errors import MillwheelError, RecordError

__all__ = ["FAILED", "FATAL", "ColumnBoundary", "passes"]

FAILED = "failed_in_columns"
"""The counter of bundles and reads that were done again record by record because of an unexpected
error."""
_MOST_LOGGED = 20
"""The most kinds of errors of one node that are logged: a message may name the record."""
_log = logging.getLogger("millwheel.columns")

Count = Callable[[str], object]


def _uncounted(name: str) -> None:
    return


class ColumnBoundary:
    """Around the column operations of one node. Each kind of error is logged once, with its
    traceback."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._logged: set[str] = set()

    @contextmanager
    def inside(self, count: Count = _uncounted) -> Iterator[None]:
        """Raises Inexact in place of any unexpected error, and counts it; and in place of one about
        a record, which processing by rows raises again. Errors of the shard and of the outside
        world, and orders to end, pass."""
        try:
            yield
        except Inexact:
            raise
        except RecordError as ex:
            raise Inexact from ex
        except (MillwheelError, OSError):
            raise
        except BaseException as ex:
            if not is_failure(ex):
                raise
            self._log_once(ex)
            count(FAILED)
            raise Inexact from ex

    def _log_once(self, ex: BaseException) -> None:
        kind = f"{type(ex).__name__}: {ex}"[:200]
        if kind not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(kind)
            _log.warning(
                "%s failed in columns, and goes on record by record: %s",
                self._node,
                kind,
                exc_info=ex,
            )
