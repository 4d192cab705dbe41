"""Find the directories of nodes, and what each has of each shard; read no log.

`discover` takes directories of nodes, or folders in which such directories lie (as a local cluster
or the chaos runs make them), on this machine or anywhere that `spark_jobs.runtime.paths` reaches.
It reads small files and the 64 bytes at the beginning of each segment. A node may be running on the
directory: marks are read before sizes, so that what lies below a mark is in the sizes too.

Whatever is missing, damaged, foreign or of a later version becomes a `Problem`, and the rest is
still there to be audited. Only three things are errors: no logs at all, logs of several clusters,
and places that cannot be opened.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from google.protobuf.message import DecodeError

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import ShardId
from spark_jobs.logs.replica import (
    ERROR,
    INFO,
    WARNING,
    Inventory,
    Problem,
    Replica,
    SegmentFile,
    ShardCopy,
)
from spark_jobs.runtime.paths import child, last_name, list_or_none, normalise, open_disk
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity, unpack_file_header
from storage.log.epochs import EpochEntry, EpochFile
from storage.log.flushed_mark import read_mark, verify_mark
from storage.log.segment import INDEX_SUFFIX, LOG_SUFFIX, find_start_offset

NODE_META: Final = "node.meta"
SHARD_START: Final = "shard-"
_SHARD_DIGITS_MAX: Final = 9
_DEPTH_MAX: Final = 3
"""So deep are nodes looked for below a given folder."""
_READ_ERRORS: Final = (errors.HourwheelError, OSError, DecodeError)


def discover(uris: Sequence[str], *, expected_nodes: Sequence[str] = ()) -> Inventory:
    """Find all nodes' directories in and below some places.

    Args:
        uris: directories of nodes or folders above them, paths or URIs.
        expected_nodes: ids of nodes that should be among them; each other one is a problem.

    Raises:
        NoLogs: none of them holds a segment of a log.
        MixedClusters: they hold logs of several clusters.
        ConfigError: a URI that cannot be opened.
    """
    replicas: list[Replica] = []
    problems: list[Problem] = []
    for uri in dict.fromkeys(map(normalise, uris)):
        found = list(_find_nodes(uri, 0))
        if not found:
            detail = f"{uri} is no directory of a node, and holds none"
            problems.append(Problem("node-unreadable", ERROR, last_name(uri), -1, "", -1, detail))
        replicas += map(read_replica, dict.fromkeys(found))
    replicas = list({one.uri: one for one in replicas}.values())
    if not any(copy.segments for one in replicas for copy in one.shards):
        raise errors.NoLogs(f"no logs in {', '.join(uris) or 'no directory'}")
    cluster_id = _the_cluster(replicas)
    replicas, twice = _with_unique_names(replicas)
    there = {one.node for one in replicas}
    missing = [node for node in expected_nodes if node not in there]
    problems += twice
    problems += [
        Problem("node-missing", ERROR, node, -1, "", -1, f"no directory of node {node!r}")
        for node in missing
    ]
    return Inventory(cluster_id, tuple(sorted(replicas, key=lambda one: one.node)), tuple(problems))


def _find_nodes(uri: str, depth: int) -> Iterator[str]:
    names = list_or_none(open_disk(uri), "")
    if names is None:
        return
    if NODE_META in names or any(_shard_number(name) is not None for name in names):
        yield uri
    elif depth < _DEPTH_MAX:
        for name in names:
            if not name.startswith("."):
                yield from _find_nodes(child(uri, name), depth + 1)


def _the_cluster(replicas: Sequence[Replica]) -> bytes:
    """The cluster's id.

    Raises:
        MixedClusters: there are several.
    """
    found: dict[bytes, list[str]] = {}
    for one in replicas:
        if one.cluster_id:
            found.setdefault(one.cluster_id, []).append(one.uri)
    if len(found) > 1:
        named = "; ".join(f"{key.hex()}: {', '.join(value)}" for key, value in found.items())
        clusters = ",".join(key.hex() for key in found)
        raise errors.MixedClusters(f"logs of {len(found)} clusters: {named}", clusters=clusters)
    return next(iter(found), b"")


def _with_unique_names(replicas: list[Replica]) -> tuple[list[Replica], list[Problem]]:
    problems: list[Problem] = []
    named: dict[str, Replica] = {}
    for one in replicas:
        name, count = one.node, 1
        while name in named:
            count += 1
            name = f"{one.node}@{count}"
        if count > 1:
            detail = f"{named[one.node].uri} and {one.uri} are both of node {one.node!r}"
            problems.append(Problem("node-twice", WARNING, name, -1, NODE_META, -1, detail))
        own = tuple(problem._replace(node=name) for problem in one.problems)
        named[name] = replace(one, node=name, problems=own)
    return list(named.values()), problems


def _shard_number(name: str) -> int | None:
    """A shard's number; None for names that no node gives a shard's folder."""
    digits = name.removeprefix(SHARD_START)
    is_number = digits != name and digits.isascii() and digits.isdigit()
    if not is_number or len(digits) > _SHARD_DIGITS_MAX or str(int(digits)) != digits:
        return None
    return int(digits)


# --- one directory ------------------------------------------------------------------------------


@dataclass
class _Look:
    """One directory while it is looked at."""

    disk: Disk
    node: str
    cluster_id: bytes = b""
    problems: list[Problem] = field(default_factory=list)

    def note(
        self, check: str, severity: str, detail: str, *, file: str = "", shard: int = -1
    ) -> None:
        """A problem without an offset."""
        self.problems.append(Problem(check, severity, self.node, shard, file, -1, detail))

    def caught(self, error: Exception, file: str, shard: int, severity: str = ERROR) -> str:
        """A file that could not be read; returns why."""
        is_foreign = isinstance(error, errors.ForeignDirectory)
        why = error.message if isinstance(error, errors.HourwheelError) else f"{file}: {error}"
        check = "foreign-file" if is_foreign else "file-unreadable"
        self.note(check, severity, why, file=file, shard=shard)
        return why


def read_replica(uri: str) -> Replica:
    """Look at one node's directory; `uri` is normalised. All that is wrong is in `problems`."""
    look = _Look(open_disk(uri), last_name(uri))
    names = list_or_none(look.disk, "") or []
    _read_node_meta(look)
    shards = []
    for name in names:
        number = _shard_number(name)
        if number is not None:
            shards.append(_read_shard(look, number, name))
        elif name.startswith(SHARD_START) and ".damaged-" in name:
            look.note("damaged-folder", WARNING, f"{name} was put aside as damaged", file=name)
        elif name.startswith(SHARD_START) and name.endswith(".incoming"):
            look.note("snapshot-incoming", INFO, f"{name}: a snapshot is on its way", file=name)
    shards.sort(key=lambda one: one.shard)
    return Replica(uri, look.node, look.cluster_id, tuple(shards), tuple(look.problems))


def _read_node_meta(look: _Look) -> None:
    try:
        found = atomic_file.read_any(look.disk, NODE_META)
        if found.header.file_type is not FileType.NODE:
            raise errors.CorruptFile(f"{NODE_META} is a {found.header.file_type.name}")
        look.node = found.payload.decode()
        look.cluster_id = found.header.identity.cluster_id
    except FileNotFoundError:
        look.note("node-meta", ERROR, f"{NODE_META} is missing", file=NODE_META)
    except (*_READ_ERRORS, UnicodeDecodeError) as error:
        look.note("node-meta", ERROR, str(error), file=NODE_META)


def _read_shard(look: _Look, number: int, folder: str) -> ShardCopy:
    copy = ShardCopy(number, folder)
    log = list_or_none(look.disk, copy.path("log")) or []
    if not look.cluster_id:
        look.cluster_id = _cluster_of_segments(look.disk, copy, log)
    identity = Identity(look.cluster_id, ShardId(number))
    # Marks first: the node may go on, and what lies below them now is in the sizes read later. The
    # epochs last: each is noted there before anything of it is in the log.
    watermark = _read_mark(look, copy, "high_watermark", identity, FileType.HIGH_WATERMARK)
    flushed = _read_mark(look, copy, "flushed.mark", identity, FileType.FLUSHED_MARK)
    manifest = _read_manifest(look, copy, identity)
    log = list_or_none(look.disk, copy.path("log")) or []
    segments = _read_segments(look, copy, identity, log)
    copy = replace(
        copy,
        flushed_offset=flushed or 0,
        high_watermark=watermark,
        manifest_raw=manifest,
        epochs=_read_epochs(look, copy, identity, segments),
        segments=segments,
        queues=_queue_folders(look.disk, copy),
    )
    _check_span(look, copy)
    return copy


def _cluster_of_segments(disk: Disk, copy: ShardCopy, names: list[str]) -> bytes:
    """Whose log it is where node.meta does not say it: the first segment with a good header's."""
    for name in names:
        if find_start_offset(name) is None:
            continue
        try:
            raw = _first_bytes(disk, copy.path("log", name))
            return unpack_file_header(raw, name).identity.cluster_id
        except _READ_ERRORS:
            continue
    return b""


def _first_bytes(disk: Disk, path: str) -> bytes:
    with closing(disk.open(path)) as file:
        return file.pread(FILE_HEADER_BYTES, 0)


def _read_mark(
    look: _Look, copy: ShardCopy, name: str, identity: Identity, file_type: FileType
) -> int | None:
    """A mark; 0 where it is damaged, None where there is none."""
    path = copy.path(name)
    try:
        if not look.disk.exists(path):
            return None
        mark = int(read_mark(look.disk, path, identity, file_type))
    except _READ_ERRORS as error:
        look.caught(error, path, copy.shard)
        return None
    try:
        verify_mark(look.disk, path, identity, file_type)
    except _READ_ERRORS as error:
        # A lower bound that is lost: no message is, but less is known to be durable or committed.
        look.caught(error, path, copy.shard, WARNING)
    return mark


def _read_manifest(look: _Look, copy: ShardCopy, identity: Identity) -> bytes:
    path = copy.path("checkpoint")
    try:
        payload = atomic_file.read(look.disk, path, FileType.CHECKPOINT, identity).payload
        Checkpoint.FromString(payload)
    except FileNotFoundError:
        return b""  # before the first checkpoint
    except _READ_ERRORS as error:
        look.caught(error, path, copy.shard)
        return b""
    return payload


def _read_epochs(
    look: _Look, copy: ShardCopy, identity: Identity, segments: tuple[SegmentFile, ...]
) -> tuple[EpochEntry, ...]:
    path = copy.path("epochs")
    try:
        if not look.disk.exists(path) and any(
            one.start_offset < one.end_offset for one in segments
        ):
            raise errors.CorruptFile(f"{path} is missing, and there is a log", file=path)
        return EpochFile.open(look.disk, path, identity).entries
    except _READ_ERRORS as error:
        look.caught(error, path, copy.shard)
        return ()


def _queue_folders(disk: Disk, copy: ShardCopy) -> tuple[int, ...]:
    found = []
    for name in list_or_none(disk, copy.path("queues")) or []:
        try:
            found.append(int(name, 16))
        except ValueError:
            continue
    return tuple(sorted(found))


def _read_segments(
    look: _Look, copy: ShardCopy, identity: Identity, names: list[str]
) -> tuple[SegmentFile, ...]:
    found = []
    indexes = {name.removesuffix(INDEX_SUFFIX) for name in names if name.endswith(INDEX_SUFFIX)}
    for name in names:
        start = find_start_offset(name)
        if start is None:
            continue
        path = copy.path("log", name)
        try:
            with closing(look.disk.open(path)) as file:
                size, raw = file.size(), file.pread(FILE_HEADER_BYTES, 0)
        except FileNotFoundError:
            continue  # removed by retention since it was listed
        except _READ_ERRORS as error:
            why = look.caught(error, path, copy.shard)
            found.append(SegmentFile(path, int(start), int(start), has_index=False, fault=why))
            continue
        end = int(start) + max(0, size - FILE_HEADER_BYTES)
        fault = _check_header(look, raw, path, identity, int(start))
        has_index = name.removesuffix(LOG_SUFFIX) in indexes
        found.append(SegmentFile(path, int(start), end, has_index, fault))
    found.sort(key=lambda one: one.start_offset)
    if not found:
        look.note("no-log", ERROR, f"{copy.folder} has no log", file=copy.folder, shard=copy.shard)
    return tuple(found)


def _check_header(look: _Look, raw: bytes, path: str, identity: Identity, start: int) -> str:
    """Note what is wrong with a segment's header; returns why nothing of the file can be read."""
    try:
        header = unpack_file_header(raw, path)
    except errors.CorruptFile as error:
        # One that is being made has no header yet, and no batch.
        look.caught(error, path, identity.shard, INFO if len(raw) < FILE_HEADER_BYTES else ERROR)
        return ""
    except errors.IncompatibleFormat as error:
        return look.caught(error, path, identity.shard)
    owner = header.identity
    if identity.cluster_id and owner != identity:
        why = f"{path} belongs to cluster {owner.cluster_id.hex()} shard {owner.shard}"
        return look.caught(errors.ForeignDirectory(why), path, identity.shard)
    if header.file_type is not FileType.LOG_SEGMENT or header.base != start:
        why = f"{path}: by its header it is {header.file_type.name} {header.base}"
        look.caught(errors.CorruptFile(why), path, identity.shard)
    return ""


def _check_span(look: _Look, copy: ShardCopy) -> None:
    """Segments follow each other, and reach as far as the log was known to reach."""

    def note(check: str, file: str, offset: int, detail: str, severity: str = ERROR) -> None:
        look.problems.append(Problem(check, severity, look.node, copy.shard, file, offset, detail))

    for before, after in pairwise(copy.segments):
        end, start = before.end_offset, after.start_offset
        if end < start:
            detail = f"bytes [{end}, {start}) of the log are in no file"
            note("segment-missing", before.path, end, detail)
        elif end > start:
            detail = f"{before.path} ends at {end}, and the next segment begins at {start}"
            note("segment-overlap", after.path, start, detail)
    if not copy.segments:
        return
    end, last = copy.end_offset, copy.segments[-1].path
    if end < copy.durable_offset:
        detail = f"the log ends at {end}, and was durable up to {copy.durable_offset}"
        note("log-short", last, end, detail)
    elif end < copy.committed_offset:
        # A follower may learn that something is committed before it has written it.
        detail = f"the log ends at {end}, and {copy.committed_offset} was committed"
        note("log-behind", last, end, detail, WARNING)
