"""The OpenAPI document of the gateway, and the page that shows it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millwheel.adapters.front.browsers import content_policy
from millwheel.engine.queries.model import CODES, Consistency, Mode

PAGE = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
"""One page of HTML, which sends requests to this gateway only."""


def _digest(tag: str) -> str:
    """The source of the one inline element ``tag`` in a content security policy."""
    text = PAGE.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


PAGE_POLICY = content_policy(_digest("script"), _digest("style"))
"""The content security policy of :data:`PAGE`: its own script and style, and no others."""


def _text(about: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": about, **more}


def _micros(about: str) -> dict[str, Any]:
    return {"type": ["integer", "null"], "description": f"{about}, µs UTC"}


_KEY = "the key: a number, a text, or a list of both"
_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "name": _text(
        "indicator, key and window in one, as in the Redis protocol: clicks:42:3h,"
        " cpc:42@1700000000000000"
    ),
    "indicator": _text("a computation, one value of it as COMPUTATION.VALUE, or a named query"),
    "formula": _text("in place of an indicator: clicks.spend / clicks.n"),
    "key": {"description": _KEY},
    "window": {
        "type": ["string", "integer"],
        "description": "a duration such as 90s, 10m, 3h or 7d, or µs",
    },
    "until": {"type": "integer", "description": "where the window ends, µs UTC; now unless given"},
    "mode": _text(
        "which slices a window takes", enum=[each.value for each in Mode], default="covering"
    ),
    "consistency": _text(
        "which state is asked", enum=[each.value for each in Consistency], default="durable"
    ),
}
_REQUEST: Mapping[str, Mapping[str, Any]] = {
    "deadline_ms": {"type": "integer", "minimum": 1, "maximum": 30_000, "default": 1_000},
    "stale": {
        "type": "boolean",
        "default": True,
        "description": "the standby of a silent worker may answer",
    },
}
_ANSWER = {
    "type": "object",
    "required": ["values", "watermark", "complete", "shard", "token", "commit", "consistency"],
    "properties": {
        "values": {
            "type": "object",
            "description": "the aggregates, states, or the value of the query, by name",
        },
        "covered_start": _micros("where the span begins that the values are of"),
        "covered_end": _micros("where it ends (exclusive)"),
        "watermark": {
            "type": "integer",
            "description": "up to where the input is complete, µs UTC",
        },
        "complete": {
            "type": "boolean",
            "description": "the watermark has passed the end, and nothing was forgotten",
        },
        "shard": _text("who answered"),
        "token": {"type": "integer", "description": "its lease"},
        "commit": {"type": "integer", "description": "the number of its commit"},
        "consistency": _text("what was asked", enum=[each.value for each in Consistency]),
        "lag": {
            "type": ["integer", "null"],
            "description": (
                "how long ago a standby had all of its owner's certain commits, µs, where that is"
                " known"
            ),
        },
    },
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": _text("for programs", examples=list(CODES)),
                "sentence": _text("for people"),
            },
        }
    },
}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(about: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": schema}}}


_ERRORS = {
    "400": _json("the question has no answer at any worker", _ref("Error")),
    "401": _json("no token, or a wrong one", _ref("Error")),
    "404": _json("there is no such indicator", _ref("Error")),
    "413": _json("over a limit", _ref("Error")),
    "429": _json("too many questions of this client wait; ask again", _ref("Error")),
    "503": _json("no worker could answer within the deadline; ask again", _ref("Error")),
}


def _parameter(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"type": "string", **about}
    text = schema.pop("description", "")
    return {"name": name, "in": "query", "description": text, "schema": schema}


_BATCH = {
    "type": "object",
    "required": ["queries"],
    "properties": {
        "queries": {"type": "array", "maxItems": 10_000, "items": _ref("Question")},
        **_REQUEST,
    },
    "example": {
        "queries": [{"indicator": "clicks", "key": 42, "window": "3h"}, {"name": "cpc:42"}]
    },
}
_ANSWERS = {
    "type": "object",
    "properties": {
        "answers": {"type": "array", "items": {"oneOf": [_ref("Answer"), _ref("Error")]}}
    },
}
DOCUMENT: Mapping[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "MillWheel queries",
        "version": "1",
        "description": (
            "The results of a pipeline, while it runs. Each question chooses its window."
        ),
    },
    "paths": {
        "/v1/query": {
            "get": {
                "summary": "Ask one question",
                "operationId": "ask",
                "parameters": [
                    _parameter(name, about) for name, about in {**_FIELDS, **_REQUEST}.items()
                ],
                "responses": {"200": _json("the answer", _ref("Answer")), **_ERRORS},
            },
            "post": {
                "summary": "Ask many questions",
                "operationId": "askMany",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": _ref("Batch")}},
                },
                "responses": {
                    "200": _json("answers and errors, in order", _ref("Answers")),
                    **_ERRORS,
                },
            },
        },
        "/v1/indicators": {
            "get": {
                "summary": "Everything that can be asked",
                "operationId": "indicators",
                "responses": {"200": _json("computations and named queries", {"type": "object"})},
            }
        },
        "/healthz": {
            "get": {
                "summary": "Whether the gateway lives",
                "responses": {"200": {"description": "it does"}},
            }
        },
        "/readyz": {
            "get": {
                "summary": "Whether it can answer",
                "responses": {
                    "200": {"description": "it can"},
                    "503": _json("it says why not", _ref("Error")),
                },
            }
        },
    },
    "components": {
        "schemas": {
            "Question": {"type": "object", "properties": _FIELDS},
            "Batch": _BATCH,
            "Answer": _ANSWER,
            "Answers": _ANSWERS,
            "Error": _ERROR,
        },
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    },
    "security": [{}, {"token": []}],
}
"""OpenAPI 3.1, at ``/openapi.json``."""
