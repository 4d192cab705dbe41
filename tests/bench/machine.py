"""What one has to know of a machine to read a measurement made on it. Linux."""

import contextlib
import os
import platform
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np

_ROOT: Final = Path(__file__).resolve().parents[2]
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
SAMPLE_S: Final = 0.5
IDLE_PERCENT_MIN: Final = 90.0
"""With less idle time than this, others were using the machine."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The machine, and the tree that is measured."""

    cores: int
    cpu: str
    memory_bytes: int
    kernel: str
    python: str
    numpy: str
    grpc: str
    file_system: str
    """Of the folder with the data directories: type and device."""
    commit: str
    """Of the tree, with "+" where files differ from it."""
    load_average: tuple[float, float, float]
    """Over 1, 5 and 15 minutes, before the first benchmark."""
    started: str
    """UTC."""

    def as_json(self) -> dict[str, Any]:
        """The facts for programs."""
        return asdict(self)


def read_facts(folder: Path) -> Facts:
    """The facts as of now; `folder`: where the data directories will be."""
    return Facts(
        cores=os.cpu_count() or 0,
        cpu=_field(Path("/proc/cpuinfo"), "model name"),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        python=platform.python_version(),
        numpy=np.__version__,
        grpc=grpc.__version__,
        file_system=_file_system(folder),
        commit=_commit(),
        load_average=os.getloadavg(),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


def _file_system(folder: Path) -> str:
    """Type and device of the mount that `folder` is on: the longest mount point above it wins."""
    here, best, found = folder.resolve(), -1, "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, point, kind = line.split()[:3]
        if here.is_relative_to(point) and len(point) >= best:
            best, found = len(point), f"{kind} on {device}"
    return found


def _commit() -> str:
    try:
        head = _git("rev-parse", "--short=12", "HEAD").strip()
        return head + ("+" if _git("status", "--porcelain").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def idle_percent() -> float:
    """How idle all cores are for half a second, as long as this takes."""
    before = _cpu_ticks()
    time.sleep(SAMPLE_S)
    after = _cpu_ticks()
    spent = [new - old for new, old in zip(after, before, strict=True)]
    return 100.0 * (spent[3] + spent[4]) / max(1, sum(spent))


def _cpu_ticks() -> list[int]:
    """Ticks of all cores by kind: user, nice, system, idle, iowait, ..."""
    first = Path("/proc/stat").read_text().splitlines()[0]
    return [int(word) for word in first.split()[1:9]]


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, its threads included."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS_PER_S


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a process, in bytes."""

    total: int
    anonymous: int
    file: int
    """Mapped pages of files: the system takes them back when it needs them."""


def children(pid: int) -> list[int]:
    """Processes that a process has started and that still run."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    found.append(int(folder.name))
    return found


def tree_cpu_seconds(pid: int) -> float:
    """`cpu_seconds` of a process and of those that it started."""
    return cpu_seconds(pid) + sum(map(tree_cpu_seconds, children(pid)))


def memory(pid: int) -> Memory:
    """Resident memory of a process."""
    path = Path(f"/proc/{pid}/status")
    total, anonymous, file, shared = (
        int(_field(path, name).split()[0]) * 1024
        for name in ("VmRSS", "RssAnon", "RssFile", "RssShmem")
    )
    return Memory(total, anonymous, file + shared)


def written_bytes(pid: int) -> int:
    """What a process has written so far, and did not take back before it went to the disk."""
    path = Path(f"/proc/{pid}/io")
    return int(_field(path, "write_bytes")) - int(_field(path, "cancelled_write_bytes"))


def disk_bytes(directory: Path) -> int:
    """Blocks that the files below a folder take; a file with several names counts once."""
    found = {}
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            stat = path.lstat()
            found[stat.st_ino] = stat.st_blocks * 512
    return sum(found.values())
