"""A manifest is believed in nothing that no backup can say, whoever made its checksum right."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from hourwheel import errors
from node.tools.backup.manifest import pack_manifest, unpack_manifest
from tests.sim.disk import SimulatedDisk
from tests.support.backup_world import back_up, lived

NONSENSE: tuple[Any, ...] = (
    *(None, 1.5, [], {}, True, -1, 1 << 70, "../../etc/passwd", "\x1b[2J"),
    [["a" * 64, 1.5]],
)


def sealed(line: bytes) -> bytes:
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"


def altered(fields: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> bytes:
    copy = json.loads(json.dumps(fields))
    change(copy)
    return sealed(json.dumps(copy).encode())


def test_manifest_with_nonsense_in_any_field_is_refused() -> None:
    raw = pack_manifest(back_up(lived(2), SimulatedDisk()).manifest)
    fields = json.loads(raw.partition(b"\n")[0])
    unpack_manifest(altered(fields, lambda _: None), "it")
    for name in fields.keys() - {"format"}:
        for value in NONSENSE:
            if name == "control" and value == []:
                continue  # there was none
            with pytest.raises(errors.CorruptFile):
                unpack_manifest(altered(fields, lambda one: one.update({name: value})), "it")  # noqa: B023
    log = next(at for at, one in enumerate(fields["files"]) if one[0].endswith(".log"))
    for part in range(3):
        for value in (*NONSENSE, 1 << 39):

            def put(one: dict[str, Any]) -> None:
                one["files"][log][part] = value  # noqa: B023

            with pytest.raises(errors.CorruptFile):
                unpack_manifest(altered(fields, put), "it")


def test_manifest_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(errors.CorruptFile):
        unpack_manifest(sealed(b'{"format":' + b"[" * 200_000), "it")


def test_manifest_without_files_of_its_log_is_refused() -> None:
    raw = pack_manifest(back_up(lived(2), SimulatedDisk()).manifest)
    fields = json.loads(raw.partition(b"\n")[0])
    with pytest.raises(errors.CorruptFile, match="log"):
        unpack_manifest(altered(fields, lambda one: one["files"].clear()), "it")
