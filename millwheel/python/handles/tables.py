"""The rows of a stream, read back from the files of its sink."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec
from millwheel.errors import SetupError
from millwheel.language.spec.reading.problems import unknown
from millwheel.launch.progress.summary import Summary

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

_KINDS = ("jsonl", "csv", "parquet")


@dataclass(frozen=True, slots=True)
class StreamFiles:
    """The files with the rows of a stream."""

    path: Path
    format: str

    def read(self) -> pl.DataFrame:
        """All published rows, in the order of their files."""
        import polars as pl

        files = sorted(
            path for path in self.path.rglob(f"part-*.{self.format}") if path.stat().st_size
        )
        if not files:
            return pl.DataFrame()
        if self.format == "parquet":
            return pl.concat([pl.read_parquet(path) for path in files], how="diagonal_relaxed")
        if self.format == "csv":
            return pl.concat(
                [pl.read_csv(path, infer_schema_length=None) for path in files],
                how="diagonal_relaxed",
            )
        return _json_lines(b"".join(path.read_bytes() for path in files))


def _json_lines(data: bytes) -> pl.DataFrame:
    """One row for each line. Values that are not objects become the column ``value``."""
    import msgspec
    import polars as pl

    if data.startswith(b"{"):
        return pl.read_ndjson(data, infer_schema_length=None)
    rows = [{"value": msgspec.json.decode(line)} for line in data.splitlines()]
    return pl.DataFrame(rows, infer_schema_length=None)


def files_of(spec: PipelineSpec, origin: str) -> dict[str, StreamFiles | str]:
    """The files of each stream of a pipeline; or the kind of its sink, if that does not write
    files."""
    files: dict[str, StreamFiles | str] = {}
    for sink in spec.sinks:
        path, form = str(sink.options.get("path", "")), str(sink.options.get("format", "jsonl"))
        readable = sink.kind == "files" and form in _KINDS and "://" not in path
        files[sink.stream] = StreamFiles(Path(origin) / path, form) if readable else sink.kind
    return files


class RunResult:
    """The results of a run. ``summary`` has its counts. Tables are read from the files of its sinks
    on each call."""

    def __init__(
        self, summary: Summary, finished: bool, streams: Mapping[str, StreamFiles | str]
    ) -> None:
        self.summary = summary
        self.finished = finished
        """Whether all input was processed. Otherwise the run was stopped, and more rows may
        follow."""
        self._streams = streams

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that have rows to read."""
        return tuple(name for name, each in self._streams.items() if isinstance(each, StreamFiles))

    def to_polars(self, stream: str = "") -> pl.DataFrame:
        """The rows of a stream, in no particular order; the name may be omitted if there is only
        one.

        Raises SetupError when the stream was not written to files.
        """
        return self._files(stream).read()

    def to_arrow(self, stream: str = "") -> pa.Table:
        """As :meth:`to_polars`, as a table of Arrow."""
        return self.to_polars(stream).to_arrow()

    def to_pandas(self, stream: str = "") -> Any:
        """As :meth:`to_polars`, as a DataFrame of pandas, which must be installed."""
        try:
            return importlib.import_module("pandas").DataFrame(
                self.to_polars(stream).to_dict(as_series=False)
            )
        except ImportError:
            raise SetupError(
                "to_pandas needs pandas: pip install pandas. to_polars and to_arrow need nothing"
            ) from None

    def to_spark(self, stream: str = "", session: Any = None) -> Any:
        """As :meth:`to_polars`, as a DataFrame of Spark, in ``session`` or else the active
        session."""
        try:
            sql = importlib.import_module("pyspark.sql")
        except ImportError:
            raise SetupError("to_spark needs Spark: pip install 'millwheel-spark[spark]'") from None
        spark = session or sql.SparkSession.builder.getOrCreate()
        return spark.createDataFrame(self.to_arrow(stream))

    def _files(self, stream: str) -> StreamFiles:
        names = [name for name in self.streams if name != DEAD_LETTERS]
        if not stream and len(names) != 1:
            raise SetupError(f"Say which stream: {', '.join(names) or 'none has rows to read'}")
        files = self._streams.get(stream or names[0])
        if files is None:
            raise SetupError(unknown("stream with rows", stream, list(self.streams)))
        if isinstance(files, str):
            raise SetupError(
                f"The rows of {stream!r} went to its sink ({files}), and only files can be read"
                " back here: read them there, or leave out the sink, so that the run keeps them"
            )
        return files

    def __repr__(self) -> str:
        how = "finished" if self.finished else "stopped"
        return (
            f"<RunResult {how}: {self.summary.records_in:,} records in,"
            f" {self.summary.records_out:,} out>"
        )
