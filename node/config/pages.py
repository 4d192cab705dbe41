"""The configuration as text: docs/CONFIGURATION.md and docs/hourwheel.toml, made from the models.

A test compares the files in docs/ with what is made here.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pydantic.fields import FieldInfo

from node.config.model import NodeConfig
from node.config.sources import ENVIRONMENT_PREFIX

_WIDTH: Final = 98
_INTRODUCTION: Final = """\
# Configuration

A node reads one TOML file (`python -m node --config hourwheel.toml`; a commented example is
[hourwheel.toml](hourwheel.toml)). Every key has a default. A variable of the environment,
`HOURWHEEL_<SECTION>__<KEY>`, overrides one key. Unknown keys and values that do not fit together
are refused at the start. The unit is also the end of each key's name where it has one.

The keys of a gateway and of webhooks are in files of their own, which are read again when they
change: `hourwheel http --config` ([guides/http.md](guides/http.md#configuration)) and
`hourwheel push --config` ([guides/webhooks.md](guides/webhooks.md)).

This page is made by `python -m node config --markdown`.
"""


class _Key(NamedTuple):
    name: str
    default: str
    unit: str
    bounds: str
    description: str


def markdown() -> str:
    """docs/CONFIGURATION.md."""
    parts = [_INTRODUCTION]
    for section, about, keys in _sections():
        parts.append(f"\n## [{section}]\n\n{about}\n")
        parts.append("| key | default | unit | allowed | meaning |\n|---|---|---|---|---|")
        parts.extend(
            f"| `{key.name}` | `{key.default}` | {key.unit} | {key.bounds} | {key.description} |"
            for key in keys
        )
    return "\n".join(parts) + "\n"


def toml() -> str:
    """docs/hourwheel.toml: every key at its default, as a comment."""
    lines = [
        "# Configuration of a Hourwheel node: every key with its default. Take away the '#' of",
        f"# what you change. {ENVIRONMENT_PREFIX}<SECTION>__<KEY> in the environment overrides it.",
        "# Made by `python -m node config --toml`.",
    ]
    for section, about, keys in _sections():
        lines += ["", *_comment(about), f"[{section}]"]
        for key in keys:
            facts = ", ".join(fact for fact in (key.unit, key.bounds) if fact)
            lines += ["", *_comment(f"{key.description}{f' ({facts})' if facts else ''}")]
            lines.append(f"#{key.name} = {key.default}")
    return "\n".join(lines) + "\n"


def _sections() -> Iterator[tuple[str, str, list[_Key]]]:
    for section, field in NodeConfig.model_fields.items():
        model = type(field.default)
        keys = [_describe(name, key) for name, key in model.model_fields.items()]
        yield section, (model.__doc__ or "").strip(), keys


def _describe(name: str, field: FieldInfo) -> _Key:
    extra: Any = field.json_schema_extra
    return _Key(
        name,
        _literal(field.default),
        extra["unit"],
        _bounds(field),
        field.description or "",
    )


def _bounds(field: FieldInfo) -> str:
    choices = getattr(field.annotation, "__args__", None)
    if choices:
        return " / ".join(map(str, choices))
    return ", ".join(
        f"{sign} {_literal(getattr(bound, name))}"
        for bound in field.metadata
        for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
        if hasattr(bound, name)
    )


def _literal(value: object) -> str:
    """`value` as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, float):
        return repr(value)
    return f'"{value}"'


def _comment(text: str) -> list[str]:
    lines, line = [], "#"
    for word in text.split():
        if len(line) + 1 + len(word) > _WIDTH:
            lines.append(line)
            line = "#"
        line += f" {word}"
    return [*lines, line]
