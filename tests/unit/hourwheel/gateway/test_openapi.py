"""The document is one of OpenAPI 3.1, and is what was agreed to.

OPENAPI_WRITE=1 .venv/bin/python -m pytest tests/unit/hourwheel/gateway/test_openapi.py
writes the golden file anew; `git diff` shows what has changed for callers.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hourwheel.gateway.openapi import make_document, make_json
from hourwheel.gateway.routes import ROUTES

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "http_openapi.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(make_json(ROUTES, "0"))
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, one) for path, item in document["paths"].items() for one in item.values()]


def schemas_in(value: Any) -> list[dict[str, Any]]:
    """All that stand under a key `schema`, and those of the components."""
    found = []
    if isinstance(value, dict):
        found += [value["schema"]] if isinstance(value.get("schema"), dict) else []
        for inner in value.values():
            found += schemas_in(inner)
    elif isinstance(value, list):
        for inner in value:
            found += schemas_in(inner)
    return found


def test_the_document_is_as_it_was_agreed_to(document: dict[str, Any]) -> None:
    if os.environ.get("OPENAPI_WRITE"):
        GOLDEN.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    assert document == json.loads(GOLDEN.read_text()), "see the top of this file"


def test_its_schemas_are_schemas_and_what_they_refer_to_is_there(document: dict[str, Any]) -> None:
    components = document["components"]["schemas"]
    schemas = [*components.values(), *schemas_in(document["paths"])]
    assert len(schemas) > 20
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
    raw = json.dumps(document)
    for name in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', raw):
        assert name in components
    assert raw.count('"$ref"') == len(re.findall(r'"\$ref": "#/components/schemas/\w+"', raw))
    assert "$defs" not in raw


def test_its_operations_are_whole(document: dict[str, Any]) -> None:
    found = operations(document)
    names = [one["operationId"] for _, one in found]
    assert len(set(names)) == len(names) == len(ROUTES) + 2
    for path, one in found:
        declared = {p["name"] for p in one.get("parameters", []) if p["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path))
        assert all(p["required"] for p in one.get("parameters", []) if p["in"] == "path")
        assert all(re.fullmatch(r"[1-5]\d\d|default", code) for code in one["responses"])
        assert all(answer["description"] for answer in one["responses"].values())


def test_examples_are_what_their_schemas_say(document: dict[str, Any]) -> None:
    components = {"components": document["components"]}
    count = 0
    for _, one in operations(document):
        for content in one.get("requestBody", {}).get("content", {}).values():
            schema = {"$schema": DIALECT, **components, **content["schema"]}
            jsonschema.validate(content["example"], schema)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({"nonsense": 1}, schema)
            count += 1
    assert count == sum(route.body is not None for route in ROUTES)


def test_the_version_is_that_of_the_program() -> None:
    assert make_document(ROUTES, "1.2.3")["info"]["version"] == "1.2.3"
