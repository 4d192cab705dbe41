"""The 64 bytes that every file of ours begins with: what it is, whose it is, how to read it.

    byte  size  field
       0     6  magic 'HWHEEL'
       6     2  type          two letters, see `FileType`
       8     2  version       u16   of the type's format
      10     2  header_bytes  u16   64
      12     4  shard         u32
      16    16  cluster_id    16 bytes of a UUID
      32     8  base          u64   log segment and index: start offset; others: file number
      40    20  zero
      60     4  crc           u32   CRC32C of bytes 0..60

The CRC stands at the same place in all versions, for ever: so a damaged version number cannot pass
for that of another version. To change a format: raise its number in `VERSIONS`, read the old one as
long as the changelog promises, and freeze a new golden file beside the old one (tests/golden).
"""

from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.formats.record_batch import Buffer
from hourwheel.types import ShardId

FILE_HEADER_BYTES: Final = 64
_MAGIC: Final = b"HWHEEL"
_STRUCT: Final = Struct("<6s2sHHI16sQ20sI")
assert _STRUCT.size == FILE_HEADER_BYTES
_CRC_AT: Final = FILE_HEADER_BYTES - 4
_ZERO: Final = bytes(20)
CLUSTER_ID_BYTES: Final = 16


class FileType(Enum):
    """What a file is."""

    LOG_SEGMENT = b"LS"
    LOG_INDEX = b"LI"
    FLUSHED_MARK = b"FM"
    HIGH_WATERMARK = b"HW"
    EPOCHS = b"EP"
    EPOCH_SEEN = b"ES"
    CONSUME_QUEUE = b"CQ"
    SEQUENCE_INDEX = b"SI"
    TOMBSTONES = b"TS"
    RUN = b"RN"
    DELAY_LOG = b"DL"
    KEY_RUN = b"KR"
    CHECKPOINT = b"CK"
    SNAPSHOT = b"SN"
    LOST_END = b"LE"
    NODE = b"ND"
    RAFT_JOURNAL = b"RJ"
    RAFT_META = b"RM"
    RAFT_VOTE = b"RV"
    RAFT_SNAPSHOT = b"RS"
    CONTROL_STATE = b"CS"


VERSIONS: Final[dict[FileType, int]] = dict.fromkeys(FileType, 1)
"""The version of each type that this code writes, and the only one that it reads."""


class Identity(NamedTuple):
    """Whose files these are."""

    cluster_id: bytes
    """16 bytes of a UUID."""
    shard: ShardId


class FileHeader(NamedTuple):
    """A file's header, understood."""

    file_type: FileType
    version: int
    identity: Identity
    base: int


def pack_file_header(file_type: FileType, identity: Identity, base: int = 0) -> bytes:
    """The 64 bytes of a new file."""
    errors.invariant(len(identity.cluster_id) == CLUSTER_ID_BYTES, "a cluster id is 16 bytes")
    raw = _STRUCT.pack(
        _MAGIC,
        file_type.value,
        VERSIONS[file_type],
        FILE_HEADER_BYTES,
        identity.shard,
        identity.cluster_id,
        base,
        _ZERO,
        0,
    )
    return raw[:_CRC_AT] + crc32c(raw[:_CRC_AT]).to_bytes(4, "little")


def with_identity(raw: Buffer, identity: Identity, path: str) -> bytes:
    """The 64 bytes of a file that is to belong to somebody else; all else of it stays.

    Args:
        raw: the file's first bytes.
        identity: whose it is to be.
        path: for the message only.

    Raises:
        CorruptFile, IncompatibleFormat: see `unpack_file_header`.
    """
    unpack_file_header(raw, path)
    errors.invariant(len(identity.cluster_id) == CLUSTER_ID_BYTES, "a cluster id is 16 bytes")
    magic, code, version, header_bytes, _, _, base, zero, _ = _STRUCT.unpack_from(raw)
    changed = _STRUCT.pack(
        magic, code, version, header_bytes, identity.shard, identity.cluster_id, base, zero, 0
    )
    return changed[:_CRC_AT] + crc32c(changed[:_CRC_AT]).to_bytes(4, "little")


def unpack_file_header(raw: Buffer, path: str) -> FileHeader:
    """Read the header of any file of ours. `path` is for the message only.

    Raises:
        CorruptFile: too short, not ours, or failing its CRC.
        IncompatibleFormat: intact, but of a type or version that this code does not know.
    """
    if len(raw) < FILE_HEADER_BYTES:
        raise errors.CorruptFile(f"{path}: only {len(raw)} bytes of a file header", file=path)
    magic, code, version, header_bytes, shard, cluster_id, base, _, crc = _STRUCT.unpack_from(raw)
    if magic != _MAGIC:
        raise errors.CorruptFile(f"{path}: no file of ours, or its first bytes are lost", file=path)
    if crc32c(memoryview(raw)[:_CRC_AT]) != crc:
        raise errors.CorruptFile(f"{path}: the file header fails its CRC32C", file=path)
    known = {file_type.value: file_type for file_type in FileType}.get(code)
    if known is None or version != VERSIONS[known] or header_bytes != FILE_HEADER_BYTES:
        raise errors.IncompatibleFormat(
            f"{path}: format {code.decode('latin-1')!r} version {version} is not known to this"
            f" version of Hourwheel",
            file=path,
            version=version,
        )
    return FileHeader(known, version, Identity(cluster_id, ShardId(shard)), base)


def check_file_header(
    raw: Buffer, path: str, file_type: FileType, identity: Identity, base: int | None = None
) -> FileHeader:
    """Read a header and demand that the file is what it should be.

    Raises:
        CorruptFile: see `unpack_file_header`; or another type, or another `base`, than demanded.
        IncompatibleFormat: see `unpack_file_header`.
        ForeignDirectory: of another cluster or shard.
    """
    header = unpack_file_header(raw, path)
    if header.identity != identity:
        raise errors.ForeignDirectory(
            f"{path} belongs to cluster {header.identity.cluster_id.hex()} shard"
            f" {header.identity.shard}, not to cluster {identity.cluster_id.hex()} shard"
            f" {identity.shard}",
            file=path,
        )
    if header.file_type is not file_type:
        raise errors.CorruptFile(
            f"{path}: {header.file_type.name} lies where {file_type.name} should be", file=path
        )
    if base is not None and header.base != base:
        raise errors.CorruptFile(
            f"{path}: the file is number {header.base} by its header", file=path
        )
    return header
