"""File systems of a harness's own, where this machine can mount any."""

import subprocess
from pathlib import Path

import pytest

from chaos import machine
from chaos.machine import can_lose_power, can_mount, power_disk, tmpfs
from tests.support.reaper import say


def mounts() -> str:
    return Path("/proc/mounts").read_text()


def can_have(kind: str) -> bool:
    found = can_mount() if kind == "tmpfs" else can_lose_power()
    if not found:
        say(f"no {kind}: this machine cannot mount one")
    return found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "BUSY_TRIES", 1)
    monkeypatch.setattr(machine, "BUSY_S", 0.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_file_system_is_gone_when_somebody_uses_it_still(tmp_path: Path, kind: str) -> None:
    if not can_have(kind):
        return
    made = tmpfs(tmp_path / "mnt", 4) if kind == "tmpfs" else power_disk(tmp_path, 16)
    disk = made.__enter__()
    with (disk.path / "file").open("wb"):
        assert str(tmp_path) in mounts()
        with pytest.raises(subprocess.CalledProcessError):
            made.__exit__(None, None, None)
    assert str(tmp_path) not in mounts()


def test_disk_without_power_is_taken_out(tmp_path: Path) -> None:
    if not can_have("ext4"):
        return
    with power_disk(tmp_path, 16) as disk:
        disk.cut_power()
        assert str(tmp_path) in mounts()
    assert str(tmp_path) not in mounts()
