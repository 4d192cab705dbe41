"""The command `python -m node inspect`: places, options, output, exit codes."""

import argparse
import json
from pathlib import Path

import pytest

from node.process.command import main as run_node
from node.tools.inspect import command
from node.tools.inspect.command import EXIT_DAMAGE, EXIT_OK, EXIT_USAGE, find_root, main, parse_hour
from tests.support.inspected import HOUR, SHARD, made_image


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for path, content in made_image().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    return tmp_path


def flip(path: Path, position: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= 1
    path.write_bytes(bytes(raw))


def test_directory_is_shown_as_tables(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_node(["inspect", str(directory), "--verify"]) == EXIT_OK
    said = capsys.readouterr().out
    for part in ("node-1", "segments", "%RETRY%workers|orders", "verified: no damage"):
        assert part in said
    assert "\x1b" not in said


def test_json_is_one_object_when_several_paths_are_given(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(directory / SHARD / "log")
    assert main([str(directory), log, "--json"]) == EXIT_OK
    said = json.loads(capsys.readouterr().out)
    assert (said["good"], said["verified"]) == (True, False)
    assert [each["path"] for each in said["paths"]] == [str(directory), log]
    assert {table["title"] for table in said["paths"][1]["tables"]} == {"segments", "flushed mark"}


def test_paths_are_told_apart_when_several_are_given(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(directory / "node.meta"), str(directory / "LOCK")]) == EXIT_OK
    said = capsys.readouterr().out
    assert f"{directory}/node.meta" in said
    assert f"{directory}/LOCK" in said


def test_exit_code_is_1_and_file_and_byte_are_named_when_something_is_damaged(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(directory / SHARD / "log" / f"{0:020d}.log", 70)
    assert main([str(directory), "--verify"]) == EXIT_DAMAGE == 1
    assert f"DAMAGE: {SHARD}/log/{0:020d}.log, byte 64: " in capsys.readouterr().out
    assert main([str(directory), "--verify", "--json"]) == EXIT_DAMAGE
    (damage,) = json.loads(capsys.readouterr().out)["paths"][0]["damage"]
    assert (damage["file"], damage["offset"]) == (f"{SHARD}/log/{0:020d}.log", 64)


def test_exit_code_is_1_when_it_is_no_data_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == EXIT_DAMAGE
    assert "node.meta" in capsys.readouterr().out


def test_exit_code_is_2_when_there_is_no_such_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nothing")]) == EXIT_USAGE
    assert "no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [[], ["--limit", "-1"], ["--offset", "x"], ["--hour", "noon"], ["--sequence", "1.5"]],
)
def test_exit_code_is_2_when_the_command_line_is_wrong(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as found:
        main(["x", *options] if options else [])
    assert found.value.code == EXIT_USAGE
    assert "usage" in capsys.readouterr().err


def test_rows_are_left_out_and_it_is_said_so_when_there_are_many(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(directory), "--hour", str(HOUR), "--limit", "3", "--json"]) == EXIT_OK
    slots = json.loads(capsys.readouterr().out)["paths"][0]["tables"][0]
    assert (len(slots["rows"]), slots["has_more"]) == (3, True)


@pytest.mark.parametrize(
    ("text", "hour"), [("500000", 500_000), ("1970-01-02T03", 27), ("2027-01-15T10:59Z", HOUR)]
)
def test_hours_are_read_as_numbers_or_instants(text: str, hour: int) -> None:
    assert parse_hour(text) == hour


def test_other_hours_are_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_hour("tomorrow")


@pytest.mark.parametrize("inside", ["", SHARD, f"{SHARD}/wheel", f"{SHARD}/epochs", "node.meta"])
def test_data_directory_is_found_from_any_path_in_it(directory: Path, inside: str) -> None:
    assert find_root(directory / inside) == (directory, inside)


def test_data_directory_is_found_when_its_owner_is_unknown(directory: Path) -> None:
    (directory / "node.meta").unlink()
    assert find_root(directory / SHARD / "log") == (directory, f"{SHARD}/log")


def test_file_outside_of_a_data_directory_is_its_own_root(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_bytes(b"")
    assert find_root(tmp_path / "a.run") == (tmp_path, "a.run")
    assert find_root(tmp_path) == (tmp_path, "")


def test_help_says_that_nothing_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    assert "Changes nothing" in " ".join(capsys.readouterr().out.split())
