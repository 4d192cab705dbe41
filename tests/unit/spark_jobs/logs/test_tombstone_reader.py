"""A file of cancelled sequences is read as the node wrote it, or not at all."""

from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors
from spark_jobs.logs.tombstone_reader import Marks, marked_in, read_marks
from storage.files.disk import RealDisk
from storage.files.file_header import FileType, pack_file_header
from storage.views.tombstones import Tombstones, TombstoneState
from tests.support.broken_logs import IDENTITY

MEMBERS = [1, 7, 65_535, 65_536, 70 << 16, (70 << 16) + 65_535]


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    disk = RealDisk(tmp_path)
    disk.make_dir("shard-0")
    tombstones = Tombstones.open(disk, "shard-0/tombstones", IDENTITY, TombstoneState())
    for some in (MEMBERS[:3], MEMBERS[3:]):
        tombstones.add(np.array(some, np.uint64))
        for work in tombstones.begin_checkpoint():
            work()
        tombstones.end_checkpoint()
    cluster, state = IDENTITY.cluster_id.hex(), tombstones.state
    return Marks(str(tmp_path), "node-1", 0, cluster, "shard-0", state.file, state.valid_bytes)


def read(marks: Marks) -> list[int]:
    found: list[int] = marked_in(read_marks(RealDisk(Path(marks.uri)), marks)).tolist()
    return found


def test_members_are_those_that_were_cancelled(marks: Marks) -> None:
    assert read(marks) == MEMBERS
    assert read(marks._replace(number=0, valid_bytes=0)) == []


@pytest.mark.parametrize("what", ["missing", "foreign", "short", "flipped", "odd"])
def test_damage_is_refused(marks: Marks, what: str) -> None:
    path = Path(marks.uri) / marks.path
    raw = path.read_bytes()
    if what == "missing":
        path.unlink()
    elif what == "foreign":
        path.write_bytes(pack_file_header(FileType.RUN, IDENTITY, 1) + raw[64:])
    elif what == "short":
        path.write_bytes(raw[:-1])
    elif what == "flipped":
        path.write_bytes(raw[:500] + bytes([raw[500] ^ 1]) + raw[501:])
    else:
        marks = marks._replace(valid_bytes=marks.valid_bytes - 4)
    with pytest.raises(errors.CorruptFile):
        read(marks)
