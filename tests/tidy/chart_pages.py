"""What is made for the Helm chart: the table of its values, and what `config` may hold.

The table comes from the comments of values.yaml: `# --` above a value begins its description. The
schema is written by hand, but for `config`, which is made from the nodes' configuration without the
keys that the chart sets itself.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

from node.config.model import NodeConfig
from tests.tidy import tree

CHART: Final = "helm/hourwheel"
SCHEMA: Final = f"{CHART}/values.schema.json"
_MARK: Final = "# --"
_INDENT: Final = 2

SET_BY_THE_CHART: Final = {
    "node": {"id", "data_directory", "listen", "advertised", "metrics_listen"},
    "cluster": {
        *("nodes", "id", "data_listen", "control_listen"),
        *("secret_file", "tls_certificate_file", "tls_key_file", "tls_authority_file"),
        "allow_faults",  # for tests of a node only
    },
    "tls": {
        *("certificate_file", "key_file", "authority_file", "plain_listen"),
        *("client_certificates", "client_authority_file"),
    },
    "access": {"is_on", "administrators"},
    "authentication": {"users_file", "token_keys_file"},
}
"""Keys that values may not set: addresses and names are one for each pod, files are mounts."""

_KEPT: Final = {
    *("type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "description",
}


class Value(NamedTuple):
    """A value of the chart with its description."""

    path: str
    text: str
    default: Any


def values() -> list[Value]:
    """All described values of values.yaml, in order."""
    defaults = yaml.safe_load(tree.text(f"{CHART}/values.yaml"))
    return [Value(".".join(path), text, _at(defaults, path)) for path, text in _described(_lines())]


def _lines() -> list[str]:
    return tree.text(f"{CHART}/values.yaml").splitlines()


def _described(lines: list[str]) -> Iterator[tuple[list[str], str]]:
    path: list[str] = []
    text: list[str] = []
    for line in lines:
        words = line.strip()
        if words.startswith(_MARK):
            text = [words.removeprefix(_MARK).strip()]
        elif words.startswith("#") and text:
            text.append(words.removeprefix("#").strip())
        elif words and not words.startswith(("#", "-")):
            depth = (len(line) - len(line.lstrip())) // _INDENT
            path = [*path[:depth], words.split(":")[0]]
            if text:
                yield path, " ".join(text)
            text = []


def _at(defaults: Any, path: list[str]) -> Any:
    for key in path:
        defaults = defaults[key]
    return defaults


def table_of_values() -> str:
    """One line for each value: name, default, meaning."""
    lines = ["| Value | Default | Meaning |", "|---|---|---|"]
    for one in values():
        told = one.text.replace("|", r"\|")
        lines.append(f"| `{one.path}` | `{json.dumps(one.default)}` | {told} |")
    return "\n".join(lines)


def config_schema() -> dict[str, Any]:
    """What `config` may hold, as a schema."""
    made = NodeConfig.model_json_schema()
    sections = {
        name: _section(made["$defs"][field["$ref"].rsplit("/", 1)[1]], name)
        for name, field in made["properties"].items()
    }
    return {
        "type": "object",
        "description": "Keys of the nodes' configuration, docs/CONFIGURATION.md.",
        "additionalProperties": False,
        "properties": sections,
    }


def _section(found: dict[str, Any], name: str) -> dict[str, Any]:
    taken = SET_BY_THE_CHART.get(name, set())
    keys = {
        key: {part: value for part, value in one.items() if part in _KEPT}
        for key, one in found["properties"].items()
        if key not in taken
    }
    return {"type": "object", "additionalProperties": False, "properties": keys}


def schema() -> str:
    """The whole schema, with `config` as the code has it now."""
    found = json.loads(tree.text(SCHEMA))
    found["properties"]["config"] = config_schema()
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
