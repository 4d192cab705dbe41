"""A replica's file of cancelled sequences, as far as its checkpoint vouches for it, verified."""

from contextlib import closing
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import ShardId
from spark_jobs.logs.replica import Replica, ShardCopy
from storage.files.disk import Disk
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity, check_file_header
from storage.views.bit_pages import PAGE_BITS_LOG2, BitPages
from storage.views.tombstones import RECORD, RECORD_BYTES, file_name

U64 = NDArray[np.uint64]
Array = NDArray[Any]
_PAGE: Final = Struct("<Q")
_PAGES_AT_ONCE: Final = 64


class Marks(NamedTuple):
    """The file of one node's shard, by its checkpoint; picklable."""

    uri: str
    node: str
    shard: int
    cluster: str
    folder: str
    """Of the shard."""
    number: int
    """0: nothing was ever cancelled."""
    valid_bytes: int

    @property
    def path(self) -> str:
        """The file in the node's directory."""
        return f"{self.folder}/tombstones/{file_name(self.number)}"


def plan_marks(replica: Replica, copy: ShardCopy, manifest: Checkpoint) -> Marks:
    """The file of a checkpoint."""
    return Marks(
        replica.uri,
        replica.node,
        copy.shard,
        replica.cluster_id.hex(),
        copy.folder,
        manifest.tombstone_file,
        manifest.tombstone_bytes,
    )


def read_marks(disk: Disk, marks: Marks) -> BitPages:
    """The cancelled sequences of a checkpoint.

    Raises:
        CorruptFile: the file is missing or damaged.
    """
    pages = BitPages()
    if not marks.number:
        return pages
    path = marks.path
    try:
        with closing(disk.open(path)) as file:
            size = max(0, marks.valid_bytes - FILE_HEADER_BYTES)
            head, raw = file.pread(FILE_HEADER_BYTES, 0), file.pread(size, FILE_HEADER_BYTES)
    except FileNotFoundError:
        raise errors.CorruptFile(f"{path} is missing", file=path) from None
    identity = Identity(bytes.fromhex(marks.cluster), ShardId(marks.shard))
    check_file_header(head, path, FileType.TOMBSTONES, identity, marks.number)
    if len(raw) != size or size % RECORD_BYTES:
        raise errors.CorruptFile(f"{path} does not end as the checkpoint says", file=path)
    for record in np.frombuffer(raw, RECORD):
        page = _PAGE.pack(int(record["page"]))
        if crc32c(record["bits"].tobytes(), crc32c(page)) != int(record["crc"]):
            raise errors.CorruptFile(f"{path}: a page fails its CRC32C", file=path)
        pages.put(record["page"].reshape(1), record["bits"].reshape(1, -1))
    return pages


def marked_in(pages: BitPages) -> U64:
    """uint64[n], ascending: the members of a set."""
    numbers = pages.page_numbers()
    found: list[U64] = [np.empty(0, np.uint64)]
    for at in range(0, len(numbers), _PAGES_AT_ONCE):
        some = numbers[at : at + _PAGES_AT_ONCE]
        bits = np.unpackbits(pages.copy_of(some), axis=1, bitorder="little")
        page, bit = np.nonzero(bits)
        found.append((some[page] << np.uint64(PAGE_BITS_LOG2)) | bit.astype(np.uint64))
    return np.concatenate(found)
