"""Reads .proto files as our house writes them: one declaration a line, its comment above it.

Descriptors keep no comments, so what the lint says about comments has to come from the text. What
it cannot read it reports; it never passes over a line.
"""

import re
from dataclasses import dataclass
from typing import Final

_NAME: Final = r"(?P<name>\w+)"
_OPENS: Final = re.compile(rf"(?P<kind>message|enum|service|oneof) {_NAME} \{{(?P<closed>\}})?$")
_RPC: Final = re.compile(rf"rpc {_NAME}\((?:stream )?[\w.]+\) returns \((?:stream )?[\w.]+\);$")
_FIELD: Final = re.compile(
    r"(?!option )(?:repeated |optional )?(?:map<\w+, [\w.]+>|[\w.]+) "
    rf"{_NAME} = \d+(?: \[[^\]]*\])?;$"
)
_VALUE: Final = re.compile(rf"{_NAME} = \d+;$")
_OTHER: Final = re.compile(
    r'(?:syntax = "proto3"|package [\w.]+|import "[\w/.]+"|option \w+ = .+|reserved .*);$'
)


@dataclass(frozen=True)
class Declaration:
    """One thing that a .proto file declares."""

    kind: str
    """message, enum, service, oneof, rpc, field or value."""
    name: str
    """With the names of what it lies in, such as `PublishRequest.topic`. A oneof is no part of the
    names of its fields."""
    line: int
    comment: str


@dataclass(frozen=True)
class ProtoText:
    """What one .proto file says."""

    declarations: list[Declaration]
    unread: list[str]
    """`line: text` of what is not written as our house writes it."""
    header: str
    """The comment above `package`."""


def read(text: str) -> ProtoText:
    """Read the text of one .proto file."""
    declarations: list[Declaration] = []
    unread: list[str] = []
    inside: list[tuple[str, str]] = []
    comment: list[str] = []
    header = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("//"):
            comment.append(line.lstrip("/ "))
            continue
        if line.startswith("package "):
            header = " ".join(comment)
        if line == "}" and inside:
            inside.pop()
        elif line and not _OTHER.match(line):
            found = _match(line, inside)
            if found is None:
                unread.append(f"{number}: {line}")
            else:
                kind, match = found
                scope = [name for outer, name in inside if outer != "oneof"]
                name = ".".join([*scope, match["name"]])
                declarations.append(Declaration(kind, name, number, " ".join(comment)))
                if match.re is _OPENS and not match["closed"]:
                    inside.append((kind, match["name"]))
        comment = []
    unread += [f"end: {name} is not closed" for _, name in inside]
    return ProtoText(declarations, unread, header)


def _match(line: str, inside: list[tuple[str, str]]) -> tuple[str, re.Match[str]] | None:
    if match := _OPENS.match(line):
        return match["kind"], match
    where = inside[-1][0] if inside else ""
    patterns = {
        "service": ("rpc", _RPC),
        "enum": ("value", _VALUE),
        "message": ("field", _FIELD),
        "oneof": ("field", _FIELD),
    }
    if where not in patterns:
        return None
    kind, pattern = patterns[where]
    found = pattern.match(line)
    return (kind, found) if found else None
