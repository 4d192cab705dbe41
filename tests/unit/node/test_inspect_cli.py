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


async def test_everything_is_a_table_by_default(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(directory)]) == 0
    said = capsys.readouterr().out
    for title in ("nodes: 1", "segments: 1", "epochs: 1", "runs: 0", "checkpoint: "):
        assert title in said
    assert "node-1" in said


async def test_rows_are_json_when_asked_so(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(directory), "batches", "--json", "--limit", "1"]) == 0
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["in"], row["kind"], row["offset"]) == ("batches", "FEATURE_LEVEL", 0)


async def test_exit_code_is_65_when_something_is_damaged(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = directory / "shard-0" / "log" / "00000000000000000000.log"
    raw = bytearray(path.read_bytes())
    raw[70] ^= 1
    path.write_bytes(bytes(raw))
    assert main(["inspect", str(directory), "batches"]) == 65
    assert "fault" in capsys.readouterr().out


def test_exit_code_is_65_when_it_is_no_data_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(tmp_path)]) == 65
    assert "no data directory" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["slots", "units"])
async def test_run_is_demanded_where_it_is_needed(
    directory: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    with pytest.raises(SystemExit):
        main(["inspect", str(directory), what])
    assert "--run" in capsys.readouterr().err
