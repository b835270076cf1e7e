"""Options that several kinds have, each declared once."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from millwheel.connect.options import Option

WithKey: TypeAlias = Annotated[
    bool, Option("true", text="`true`: add the record's key as the field `key`")
]
WithTimestamp: TypeAlias = Annotated[
    bool, Option("true", text="`true`: add the record's timestamp (µs) as the field `timestamp`")
]
Mark: TypeAlias = Annotated[
    str, Option("change", text="`changelog`: the name of the field that contains `+` or `-`")
]
Flush: TypeAlias = Annotated[
    str | int,
    Option("100ms", python="Duration", text="how long a row waits for others of its batch"),
]
StoreConfig: TypeAlias = Annotated[
    dict[str, Any],
    Option(
        '{endpoint: "http://127.0.0.1:9000", region: us-east-1}',
        text=(
            "for `path: s3://…`, `gs://…`, `az://…`: settings of the client of the"
            " [object store](objects.md)"
        ),
    ),
]
Brokers: TypeAlias = Annotated[
    str, Option('"127.0.0.1:9092"', text="`host:port`, several with commas")
]
