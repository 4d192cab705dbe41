"""The API is documented, named alike and never broken; generated code is that of its source."""

import re
from typing import Any, Final

import pytest

from tests.tidy import proto_golden, proto_sources, proto_text, tree

PROTOS: Final = tree.files_named(".proto")
FILES: Final = {f"proto/{file.name}": file for file in proto_golden.files()}

CAMEL: Final = re.compile(r"(?:[A-Z][a-z0-9]*)+")
SNAKE: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


def declared(file: Any) -> set[tuple[str, str]]:
    """(kind, name) of what a compiled file declares, to be compared with what its text does."""
    found = {("service", service.name) for service in file.service}
    found |= {("rpc", f"{s.name}.{rpc.name}") for s in file.service for rpc in s.method}
    found |= {("enum", enum.name) for enum in file.enum_type}
    found |= {("value", f"{e.name}.{value.name}") for e in file.enum_type for value in e.value}
    for message in file.message_type:
        found |= {("message", message.name)}
        found |= {("field", f"{message.name}.{field.name}") for field in message.field}
        optional = {field.oneof_index for field in message.field if field.proto3_optional}
        found |= {
            ("oneof", f"{message.name}.{oneof.name}")
            for index, oneof in enumerate(message.oneof_decl)
            if index not in optional
        }
    return found


def test_generated_code_is_that_of_the_proto_files() -> None:
    recorded = tree.text(proto_sources.SOURCES)
    assert recorded == proto_sources.content(), "run `make proto`"


@pytest.mark.parametrize("path", PROTOS)
def test_text_and_descriptor_declare_the_same(path: str) -> None:
    text = proto_text.read(tree.text(path))
    assert text.unread == []
    assert {(each.kind, each.name) for each in text.declarations} == declared(FILES[path])


@pytest.mark.parametrize("path", PROTOS)
def test_everything_declared_has_a_comment(path: str) -> None:
    text = proto_text.read(tree.text(path))
    assert text.header, "say above `package` what the file is for"
    bare = [f"{each.line}: {each.name}" for each in text.declarations if not each.comment]
    assert bare == []


@pytest.mark.parametrize("path", PROTOS)
def test_package_carries_a_version_and_is_the_same_everywhere(path: str) -> None:
    assert FILES[path].package == "hourwheel.v1"
    assert FILES[path].syntax == "proto3"


@pytest.mark.parametrize("path", PROTOS)
def test_names_have_their_form(path: str) -> None:
    file = FILES[path]
    wrong = [m.name for m in (*file.message_type, *file.enum_type) if not CAMEL.fullmatch(m.name)]
    wrong += [s.name for s in file.service if not re.fullmatch(rf"{CAMEL.pattern}Service", s.name)]
    wrong += [r.name for s in file.service for r in s.method if not CAMEL.fullmatch(r.name)]
    wrong += [
        f"{message.name}.{field.name}"
        for message in file.message_type
        for field in message.field
        if not SNAKE.fullmatch(field.name)
    ]
    assert wrong == []


@pytest.mark.parametrize("path", PROTOS)
def test_enums_begin_with_unspecified_and_carry_their_prefix(path: str) -> None:
    for enum in FILES[path].enum_type:
        prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper()
        zero = [value.name for value in enum.value if value.number == 0]
        assert zero == [f"{prefix}_UNSPECIFIED"], enum.name
        assert all(value.name.startswith(f"{prefix}_") for value in enum.value), enum.name


@pytest.mark.parametrize("path", PROTOS)
def test_every_rpc_has_a_request_and_a_response_of_its_own(path: str) -> None:
    for service in FILES[path].service:
        for rpc in service.method:
            assert rpc.input_type.endswith(f".{rpc.name}Request")
            assert rpc.output_type.endswith(f".{rpc.name}Response")


def test_api_only_grows_and_growth_is_accepted() -> None:
    golden, api = proto_golden.load(), proto_golden.current()
    assert proto_golden.broken(golden, api) == [], "field numbers are for ever: put it back"
    assert proto_golden.added(golden, api) == [], "run `make proto-accept`"


ACCEPTED: Final[proto_golden.Api] = {
    "message a.M": {"1": "string name", "2": "repeated int64 due_ms"},
    "enum a.E": {"0": "E_UNSPECIFIED"},
    "service a.S": {"Get": "a.GetRequest -> a.GetResponse"},
}


@pytest.mark.parametrize(
    ("owner", "key", "value"),
    [
        ("message a.M", "1", "bytes name"),
        ("message a.M", "1", "string title"),
        ("message a.M", "2", "int64 due_ms"),
        ("message a.M", "2", None),
        ("enum a.E", "0", "E_NONE"),
        ("service a.S", "Get", "a.GetRequest -> stream a.GetResponse"),
        ("service a.S", None, None),
    ],
)
def test_breaking_check_refuses_when_something_accepted_changes(
    owner: str, key: str | None, value: str | None
) -> None:
    api = {name: dict(members) for name, members in ACCEPTED.items()}
    if key is None:
        del api[owner]
    elif value is None:
        del api[owner][key]
    else:
        api[owner][key] = value
    assert len(proto_golden.broken(ACCEPTED, api)) == 1
    with pytest.raises(ValueError, match="would break clients"):
        proto_golden.accept(ACCEPTED, api)


def test_breaking_check_accepts_when_something_is_added() -> None:
    api = {**ACCEPTED, "message a.M": {**ACCEPTED["message a.M"], "3": "bool b"}, "message a.N": {}}
    assert proto_golden.broken(ACCEPTED, api) == []
    assert proto_golden.added(ACCEPTED, api) == [
        "message a.M: 3 (bool b)",
        "message a.N:  (no members)",
    ]
    assert proto_golden.accept(ACCEPTED, api) == api


@pytest.mark.parametrize(
    "line", ["string name=1;", "string a = 1; // after", "/* block */", "option x.y = 1;", "string"]
)
def test_reader_reports_when_a_line_is_not_written_as_ours(line: str) -> None:
    text = proto_text.read(f"// What.\npackage a.v1;\n// M.\nmessage M {{\n  {line}\n}}\n")
    assert text.unread == [f"5: {line}"]


def test_reader_reports_when_a_comment_stands_apart() -> None:
    text = proto_text.read("message M {\n  // Of nothing.\n\n  string name = 1;\n}\n")
    assert [each.comment for each in text.declarations] == ["", ""]
