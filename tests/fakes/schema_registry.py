"""The part of confluent-kafka's registry client that ours uses, over schemas in memory."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryError
from confluent_kafka.schema_registry.common.schema_registry_client import RegisteredSchema


class FakeRegistryClient:
    """``away``: each call fails as a connection that is refused. ``refuses`` is what registering
    answers with."""

    def __init__(self) -> None:
        self.away = False
        self.refuses: SchemaRegistryError | None = None
        self.asked: list[int] = []
        self.registered: list[str] = []
        self._schemas: list[tuple[str, Schema]] = []

    def register(
        self,
        subject: str,
        schema: Any,
        kind: str = "AVRO",
        references: list[tuple[str, str, int]] | None = None,
    ) -> int:
        """A schema that somebody has registered; its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        made = Schema(text, kind, [SchemaReference(*each) for each in references or ()])
        self._schemas.append((subject, made))
        return len(self._schemas)

    def get_schema(self, number: int) -> Schema:
        self._reach()
        self.asked.append(number)
        if not 0 < number <= len(self._schemas):
            raise SchemaRegistryError(404, 40403, "Schema not found")
        return self._schemas[number - 1][1]

    def get_version(self, subject: str, version: int) -> RegisteredSchema:
        self._reach()
        number, made = [
            (at, made) for at, (name, made) in enumerate(self._schemas, 1) if name == subject
        ][version - 1]
        return RegisteredSchema(
            schema_id=number, guid=None, schema=made, subject=subject, version=version
        )

    def register_schema(self, subject: str, schema: Schema) -> int:
        self._reach()
        if self.refuses is not None:
            raise self.refuses
        self.registered.append(subject)
        return self.register(subject, schema.schema_str, schema.schema_type or "AVRO")

    def lookup_schema(self, subject: str, schema: Schema) -> RegisteredSchema:
        self._reach()
        for number, (name, made) in enumerate(self._schemas, 1):
            if (name, made.schema_str) == (subject, schema.schema_str):
                return RegisteredSchema(
                    schema_id=number, guid=None, schema=made, subject=subject, version=1
                )
        raise SchemaRegistryError(404, 40403, "Schema not found")

    def close(self) -> None:
        """There are no connections."""

    def _reach(self) -> None:
        if self.away:
            raise ConnectionError("connection refused")
