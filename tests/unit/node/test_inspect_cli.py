"""The command `python -m node inspect`."""

import json
from pathlib import Path

import pytest

from node.__main__ import main
from node.embedded import EmbeddedNode

SMALL = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    async with EmbeddedNode(tmp_path, SMALL):
        pass
    return tmp_path


async def test_directory_is_shown_as_tables(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(directory)]) == 0
    assert "node-1" in capsys.readouterr().out


async def test_directory_is_shown_as_json_when_asked_so(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(directory / "shard-0" / "log"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["good"] is True


async def test_exit_code_is_65_when_something_is_damaged(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = directory / "shard-0" / "log" / "00000000000000000000.log"
    raw = bytearray(path.read_bytes())
    raw[70] ^= 1
    path.write_bytes(bytes(raw))
    assert main(["inspect", str(directory), "--verify"]) == 65
    assert "DAMAGE" in capsys.readouterr().out


def test_exit_code_is_65_when_it_is_no_data_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(tmp_path)]) == 65
    assert "node.meta" in capsys.readouterr().out
