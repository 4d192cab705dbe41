"""The API as it was accepted, in proto/api.golden.json, against the one that the code has now.

`make proto-accept` (`python -m tests.tidy.proto_golden`) writes what is new into the golden file,
and refuses to take anything away from it or to change it: numbers, types and names are for ever.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any, Final, TypeAlias

from google.protobuf import descriptor_pb2

ROOT: Final = Path(__file__).resolve().parents[2]
GOLDEN: Final = ROOT / "proto" / "api.golden.json"

Api: TypeAlias = dict[str, dict[str, str]]
"""Full name of a message, enum or service -> {field number, enum number or rpc -> what it is}."""

_FIELD: Final = descriptor_pb2.FieldDescriptorProto


def files() -> list[Any]:
    """The compiled proto files, as FileDescriptorProto."""
    compiled = []
    for path in sorted((ROOT / "proto").glob("hourwheel/**/*.proto")):
        folder = ".".join(path.parent.relative_to(ROOT / "proto").parts)
        module = importlib.import_module(f"{folder}.{path.stem}_pb2")
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        compiled.append(file)
    return compiled


def current() -> Api:
    """The API of the generated code."""
    api: Api = {}
    for file in files():
        for message in file.message_type:
            _add_message(api, f"{file.package}.{message.name}", message)
        for enum in file.enum_type:
            api[f"enum {file.package}.{enum.name}"] = {str(v.number): v.name for v in enum.value}
        for service in file.service:
            api[f"service {file.package}.{service.name}"] = {
                rpc.name: f"{_side(rpc.input_type, streaming=rpc.client_streaming)} -> "
                f"{_side(rpc.output_type, streaming=rpc.server_streaming)}"
                for rpc in service.method
            }
    return api


def _side(type_name: str, *, streaming: bool) -> str:
    return ("stream " if streaming else "") + type_name.lstrip(".")


def _add_message(api: Api, name: str, message: Any) -> None:
    api[f"message {name}"] = {str(f.number): _field(message, f) for f in message.field}
    for nested in message.nested_type:
        _add_message(api, f"{name}.{nested.name}", nested)
    for enum in message.enum_type:
        api[f"enum {name}.{enum.name}"] = {str(v.number): v.name for v in enum.value}


def _field(message: Any, field: Any) -> str:
    """`[repeated|optional|oneof X] type name`: all that the wire and generated code depend on."""
    label = ""
    if field.label == _FIELD.LABEL_REPEATED:
        label = "repeated "
    elif field.proto3_optional:
        label = "optional "
    elif field.HasField("oneof_index"):
        label = f"oneof {message.oneof_decl[field.oneof_index].name} "
    kind = field.type_name.lstrip(".") or _FIELD.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"{label}{kind} {field.name}"


def broken(golden: Api, api: Api) -> list[str]:
    """What of `golden` is not as it was in `api`."""
    found = []
    for owner, members in golden.items():
        if owner not in api:
            found.append(f"{owner} is gone")
            continue
        for key, what in members.items():
            now = api[owner].get(key)
            if now is None:
                found.append(f"{owner}: {key} ({what}) is gone")
            elif now != what:
                found.append(f"{owner}: {key} was ({what}) and is ({now})")
    return found


def added(golden: Api, api: Api) -> list[str]:
    """What of `api` is not in `golden`."""
    return [
        f"{owner}: {key} ({what})"
        for owner, members in api.items()
        for key, what in members.items() or [("", "no members")]
        if owner not in golden or (key and key not in golden[owner])
    ]


def load() -> Api:
    """The accepted API; empty before the first `make proto-accept`."""
    golden: Api = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    return golden


def accept(golden: Api, api: Api) -> Api:
    """`golden` with what `api` adds to it.

    Raises:
        ValueError: naming what `api` takes away or changes.
    """
    breaks = broken(golden, api)
    if breaks:
        raise ValueError("this would break clients:\n  " + "\n  ".join(breaks))
    return api


def main() -> int:
    """Accept additions; 1 and a list where there is anything else."""
    golden, api = load(), current()
    try:
        accepted = accept(golden, api)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for line in added(golden, api) if golden else ["everything"]:
        sys.stdout.write(f"added {line}\n")
    GOLDEN.write_text(json.dumps(accepted, indent=1, sort_keys=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
