"""Reads one partition of a table or query: a thread fetches pages ahead, so the worker's loop never
blocks."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from millwheel.connect.connectors.external import meanings
from millwheel.connect.connectors.external.absence import BackOff, absence_of
from millwheel.connect.connectors.external.meanings import Next, Tries, UnknownError, given_up
from millwheel.connect.connectors.postgres.pages import Page, Pages
from millwheel.connect.sources.base import Chunk, Reader, Reject
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.core.model.damage import DAMAGE
from millwheel.errors import UnavailableError, invariant

_AHEAD = 2  # pages: one is read while the next one comes


class RowDecoder:
    """JSON of a row as a record: a ``schema``, or a dict whose ``fields`` have their declared
    types."""

    def __init__(self, schema: type | None, fields: Mapping[str, str]) -> None:
        self._types = FieldTypes(fields if schema is None else {})
        self._decode: Any = (
            msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
            if self._types.decimals
            else msgspec.json.Decoder(schema or dict[str, Any])
        ).decode

    def one(self, text: bytes) -> tuple[Any, str]:
        """(The record, the error in it or "")."""
        try:
            value = self._decode(text)
        except DAMAGE as ex:
            return None, str(ex)
        return value, self._types.check([value]).get(0, "") if self._types else ""


class Fetching:
    """A thread that fetches one page after the other, up to ``until``. Any error other than an
    absence ends the thread and is raised by the next ``take``."""

    def __init__(self, pages: Pages, after: int, until: int) -> None:
        self._pages, self._after, self._until = pages, after, until
        self._results: queue.Queue[Page | Exception] = queue.Queue(_AHEAD)
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="postgres-pages", daemon=True).start()

    def take(self) -> Page | None:
        """The next page, None if it has not arrived."""
        try:
            result = self._results.get_nowait()
        except queue.Empty:
            return None
        if isinstance(result, Exception):
            raise result
        return result

    def end(self) -> None:
        """Let the thread end and close the connection; it does so soon."""
        self._ended.set()
        while self.take_silently():
            pass

    def take_silently(self) -> bool:
        """Drop a page, so that the thread stops waiting for room."""
        try:
            self._results.get_nowait()
        except queue.Empty:
            return False
        return True

    def _run(self) -> None:
        after, absence, tries = self._after, absence_of(self._pages.where), Tries()
        back_off = BackOff(sleep=self._rest)
        try:
            while not self._ended.is_set():
                back_off.wait()
                try:
                    page = self._pages.page(after, self._until)
                except (UnavailableError, UnknownError) as ex:
                    if isinstance(ex, UnknownError) and tries.failed(ex, 0) is Next.STOP:
                        raise given_up(ex) from ex
                    back_off.failed()
                    absence.noted(str(ex))
                    continue
                tries.worked()
                back_off.worked()
                absence.over()
                self._put(page)
                if page.last:
                    return
                # The next page begins behind this key: if it did not rise, reading would never end.
                invariant(page.rows[-1][0] > after, f"{page.rows[-1][0]} follows key {after}")
                after = page.rows[-1][0]
        except BaseException as ex:  # also a panic of the client: the reader would wait for ever
            self._put(meanings.in_words(ex, self._pages.where))
        finally:
            self._pages.close()

    def _rest(self, seconds: float) -> None:
        self._ended.wait(seconds)

    def _put(self, result: Page | Exception) -> None:
        while not self._ended.is_set():
            try:
                self._results.put(result, timeout=0.5)
            except queue.Full:
                continue
            return


class PostgresReader(Reader):
    """``low`` is the first key of the partition, ``high`` its last one. The position of a row is
    its key, counted from 1 at ``low``."""

    def __init__(
        self, pages: Callable[[], Pages], decoder: RowDecoder, low: int, high: int
    ) -> None:
        self._pages, self._decoder = pages, decoder
        self._low, self._high = low, high
        self._fetching: Fetching | None = None
        self._rows: deque[tuple[int, bytes]] = deque()
        self._last = False
        self._at = -1

    def read(self, position: int, max_records: int) -> Chunk:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        self._go_to(position)
        assert self._fetching is not None
        if not self._rows and not self._last:
            page = self._fetching.take()
            if page is not None:
                self._rows.extend(page.rows)
                self._last = page.last
        chunk = Chunk([], [], position)
        for _ in range(min(max_records, len(self._rows))):
            self._add(chunk, *self._rows.popleft())
        if self._last and not self._rows:
            chunk.next_position, chunk.finished = self._high - self._low + 1, True
        chunk.caught_up = not chunk.finished and chunk.next_position == position
        self._at = chunk.next_position
        return chunk

    def close(self) -> None:
        if self._fetching is not None:
            self._fetching.end()
            self._fetching = None

    def _go_to(self, position: int) -> None:
        if self._fetching is not None and position == self._at:
            return
        self.close()
        self._rows.clear()
        self._last, self._at = False, position
        # With a connection of its own: the thread of an earlier reading may still wait for an
        # answer.
        self._fetching = Fetching(self._pages(), self._low + position - 1, self._high)

    def _add(self, chunk: Chunk, key: int, text: bytes) -> None:
        position = key - self._low + 1
        value, wrong = self._decoder.one(text)
        if wrong:
            chunk.rejects.append(Reject(position, text.decode(errors="replace"), wrong))
        else:
            chunk.positions.append(position)
            chunk.values.append(value)
        chunk.next_position = position
