"""What is typed wrongly, or is not there, is said; nothing is made then."""

import hashlib
import json
from pathlib import Path

import pytest

from hourwheel.clock import Clock
from node.shard.node_meta import open_node_meta
from node.tools.backup import command, restore_command
from storage.files.disk import RealDisk
from tests.support.embedded_node import EmbeddedNode

RESTORE = ("--overdue", "release")


def test_a_folder_that_is_no_data_directory_is_not_backed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "backups"
    assert command.main(["create", str(tmp_path), "--to", str(folder)]) == command.EXIT_FAILED
    assert "no data directory" in capsys.readouterr().err
    assert not folder.exists()


def test_a_folder_that_is_not_there_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    assert command.main(["list", missing]) == command.EXIT_FAILED
    to = str(tmp_path / "new")
    assert restore_command.main(["--from", missing, "--to", to, *RESTORE]) == 1
    assert capsys.readouterr().err.count("there is no folder") == 2
    assert not Path(to).exists()


def test_what_is_not_understood_is_refused(tmp_path: Path) -> None:
    arguments = ["--from", str(tmp_path), "--to", str(tmp_path / "new")]
    for wrong in (["--overdue", "keep"], [*RESTORE, "--until", "2026-11-23T08:00:00"]):
        with pytest.raises(SystemExit) as ended:
            restore_command.main([*arguments, *wrong])
        assert ended.value.code == 2


def test_a_node_that_never_began_has_nothing_to_back_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = tmp_path / "data", str(tmp_path / "backups")
    data.mkdir()
    open_node_meta(RealDisk(data), "n")
    assert command.main(["create", str(data), "--to", folder]) == command.EXIT_FAILED
    assert "no shard" in capsys.readouterr().err
    assert command.main(["list", folder]) == command.EXIT_OK


async def test_only_the_backup_is_restored_that_is_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = tmp_path / "data", tmp_path / "backups"
    taken = []
    for _ in range(2):
        async with EmbeddedNode(data, {"disk": {"free_bytes_min": 0}}):
            pass
        assert command.main(["create", str(data), "--to", str(folder), "--json"]) == command.EXIT_OK
        taken.append(json.loads(capsys.readouterr().out))
    first, second = (folder / "backups" / f"{one['backup']}.json" for one in taken)
    assert hashlib.sha256(first.read_bytes()).hexdigest() == taken[0]["manifest_sha256"]
    to = ["--from", str(folder), "--to", str(tmp_path / "new"), *RESTORE]
    expected = ["--backup", taken[0]["backup"], "--expect-manifest", taken[0]["manifest_sha256"]]
    whole = first.read_bytes()
    first.write_bytes(second.read_bytes())  # as whole as the other, and not what was backed up
    assert restore_command.main([*to, *expected]) == restore_command.EXIT_FAILED
    assert "not the manifest that was expected" in capsys.readouterr().err
    assert list((tmp_path / "new").glob("shard*")) == []
    first.write_bytes(whole)
    assert restore_command.main([*to, *expected]) == restore_command.EXIT_OK
    for wrong in ("00", "no digits"):
        with pytest.raises(SystemExit):
            restore_command.main([*to, "--expect-manifest", wrong])


def test_no_record_is_stored_in_the_future(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = ("--now", "2100-01-01T00:00:00Z")
    to = tmp_path / "new"
    assert restore_command.main(["--from", str(tmp_path), "--to", str(to), *RESTORE, *now]) == 1
    assert "in the future" in capsys.readouterr().err
    assert not to.exists()


def test_no_more_is_read_than_the_pace_allows() -> None:
    class Stopped(Clock):
        waits = 0

        def wall_ms(self) -> float:
            return 0.0

        def monotonic_ms(self) -> float:
            self.waits += 1
            return self.waits * 10_000.0

    pace = command.pace_of(Stopped(), 1 << 20)
    for _ in range(100):
        pace(1 << 20)  # ten seconds pass with each look: there is nothing to wait for
    command.pace_of(Stopped(), 0)(1 << 40)


def largest_piece(folder: str) -> Path:
    return max(Path(folder, "objects").glob("*/*"), key=lambda one: one.stat().st_size)


async def test_damaged_pieces_are_removed_on_request_and_written_by_the_next_backup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = tmp_path / "data", str(tmp_path / "backups")
    async with EmbeddedNode(data, {"disk": {"free_bytes_min": 0}}):
        pass
    create, verify = ["create", str(data), "--to", folder], ["verify", folder, "--json"]
    assert command.main(create) == command.EXIT_OK
    piece = largest_piece(folder)
    raw = piece.read_bytes()
    piece.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert command.main(create) == command.EXIT_OK
    capsys.readouterr()

    assert command.main(verify) == command.EXIT_FAILED
    said = capsys.readouterr()
    assert all(piece.name in json.loads(line)["damaged"][0] for line in said.out.splitlines())
    assert "verify --mend" in said.err
    assert piece.exists()
    assert command.main([*verify, "--mend"]) == command.EXIT_FAILED
    said = capsys.readouterr()
    name = f"objects/{piece.parent.name}/{piece.name}"
    assert [json.loads(line)["removed"] for line in said.out.splitlines()] == [[name], []]
    assert "hourwheel backup create" in said.err
    assert not piece.exists()
    assert command.main(create) == command.EXIT_OK
    assert piece.read_bytes() == raw
    assert command.main([*verify, "--mend"]) == command.EXIT_OK
    assert capsys.readouterr().err == ""
