"""The OpenAPI 3.1 document, made of the table of routes and the types of their bodies.

Descriptions of fields are those of the types; the first line of a type's docstring is its own.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from pydantic import TypeAdapter

from hourwheel.gateway import models
from hourwheel.gateway.calls import IDEMPOTENCY_KEY_CHARS_MAX
from hourwheel.gateway.routes import JSON, Route

VERSION: Final = "3.1.0"
_REFS: Final = "#/components/schemas/{model}"
_NAME: Final = re.compile(r"\{(\w+)\}")
_PROBLEM: Final = {
    "type": "object",
    "description": "RFC 9457. `reason` is a name of docs/ERRORS.md.",
    "required": ["type", "title", "status", "reason", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "reason": {"type": "string"},
        "detail": {"type": "string"},
        "params": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
_SECURITY: Final = {
    "token": {"type": "http", "scheme": "bearer"},
    "user": {"type": "http", "scheme": "basic"},
    "certificate": {"type": "mutualTLS"},
}
_KEY_TEXT: Final = (
    "The same caller, topic and key publish once, at whichever gateway, for a day by default"
    " (limits.producer_idle_ms). Another request under the key is refused with 422"
    " (IDEMPOTENCY_KEY_REUSED) where its bodies, metadata or instants differ from those of the"
    " first one, as long as the log has that, and where the gateway has seen the first one lately,"
    " for any difference. Else the answer is the first one's: for another delay at another gateway,"
    " for the first messages of a longer list, and when the log has the first ones no more."
)


def make_document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The document; `version`: of Hourwheel."""
    schemas: dict[str, Any] = {"Problem": _PROBLEM}
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    for path, summary in (
        ("/healthz", "Whether the gateway runs."),
        ("/readyz", "Whether it runs and reaches a node."),
    ):
        paths[path] = {"get": _health(path, summary, schemas)}
    return {
        "openapi": VERSION,
        "info": {
            "title": "Hourwheel",
            "version": version,
            "description": "Schedule messages for any moment in the next years.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items())), "securitySchemes": _SECURITY},
        "security": [{}, *({name: []} for name in _SECURITY)],
    }


def make_json(routes: Sequence[Route], version: str) -> bytes:
    """The document as it is served."""
    return json.dumps(make_document(routes, version), indent=1).encode() + b"\n"


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _NAME.findall(route.path)
    ]
    parameters += [
        {
            "name": name,
            "in": "query",
            "required": name == "key",
            "schema": {"type": "integer" if name == "limit" else "string"},
        }
        for name in route.query
    ]
    if route.takes_key:
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": _KEY_TEXT,
                "schema": {"type": "string", "maxLength": IDEMPOTENCY_KEY_CHARS_MAX},
            }
        )
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "x-grpc-methods": [path.strip("/") for path in route.twins],
        "parameters": parameters,
        "responses": {
            str(route.status): {
                "description": "Done.",
                "content": {JSON: {"schema": _schema(route.answer, schemas, "serialization")}},
            },
            "default": {
                "description": "Not done, unless `detail` says that this is not known.",
                "content": {
                    "application/problem+json": {"schema": {"$ref": _REFS.format(model="Problem")}}
                },
            },
        },
    }
    if route.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {
                JSON: {
                    "schema": _schema(route.body, schemas, "validation"),
                    "example": route.example,
                }
            },
        }
    return found


def _health(path: str, summary: str, schemas: dict[str, Any]) -> dict[str, Any]:
    content = {JSON: {"schema": _schema(models.Health, schemas, "serialization")}}
    return {
        "operationId": path.strip("/"),
        "summary": summary,
        "security": [],
        "responses": {
            "200": {"description": "It does.", "content": content},
            "503": {"description": "It does not.", "content": content},
        },
    }


def _schema(kind: Any, schemas: dict[str, Any], mode: Any) -> dict[str, Any]:
    """A reference, or a schema; what it refers to goes into `schemas`."""
    made = TypeAdapter(kind).json_schema(ref_template=_REFS, mode=mode)
    schemas.update(made.pop("$defs", {}))
    title = made.get("title")
    if title and made.get("type") == "object":
        schemas[title] = made
        return {"$ref": _REFS.format(model=title)}
    return made
