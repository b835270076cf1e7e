"""``millwheel schema``: the JSON Schema of the pipeline file as text."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millwheel.adapters.rights import under_users_umask
from millwheel.connect.built_in import LOOKUPS, SINKS, SOURCES
from millwheel.connect.kinds import known_lookups, known_sinks, known_sources
from millwheel.errors import SetupError
from millwheel.language.schema.parts import Installed, pipeline_schema
from millwheel.language.schema.words import Schema


def schema_text() -> str:
    """The schema as a file has it, with the kinds of sources, sinks and lookups that are installed
    here."""
    more = Installed(
        sorted({*known_sources()} - SOURCES.keys()),
        sorted({*known_sinks()} - SINKS.keys()),
        sorted({*known_lookups()} - LOOKUPS.keys()),
    )
    return text_of(pipeline_schema(more))


def text_of(schema: Schema) -> str:
    """A schema as text."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def write_schema(file: str) -> str:
    """Write the schema. Returns the line with which a pipeline file begins so that editors check
    it. Raises SetupError."""
    try:
        with under_users_umask():
            Path(file).write_text(schema_text(), encoding="utf-8")
    except OSError as error:
        raise SetupError(
            f"{file} cannot be written: {error.strerror}; name a file in a folder that exists"
        ) from error
    return f"# yaml-language-server: $schema={file}"
