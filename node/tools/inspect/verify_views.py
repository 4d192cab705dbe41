"""`inspect --verify` of the views besides the wheel, each against the manifest."""

from contextlib import closing
from typing import Final

import numpy as np

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.state_pb2 import Checkpoint, QueueState
from hourwheel.types import TOPIC_ID_MAX, Offset, TopicQueue, topic_of
from node.tools.inspect.files import ShardFiles
from node.tools.inspect.indexes import (
    TOMBSTONES,
    Cancelled,
    blocks_of,
    read_tail,
    sequence_path,
    tail_path,
    tombstone_path,
)
from node.tools.inspect.report import READ_ERRORS, Report
from node.tools.inspect.verify_log import LogFacts
from node.tools.inspect.verify_wheel import Blobs
from node.tools.inspect.views import QUEUES, chunk_seals
from storage.files.file_header import FileType
from storage.queues.consume_queues import folder_name
from storage.queues.mapped_chunks import file_name as chunk_name
from storage.queues.queue_chunk import ENTRIES_AT, find_seal
from storage.views.sequence_index import BLOCK_ENTRIES, CHUNK_BLOCKS, SlotState
from storage.views.unit import UNIT, UNIT_BYTES, Units

_READ_ENTRIES: Final = 16_384
_STATE_MAX: Final = max(SlotState)


# --- consume queues -----------------------------------------------------------------------------


def verify_queue(files: ShardFiles, state: QueueState, blobs: Blobs, report: Report) -> None:
    """One queue: the seal, the CRC and the entries of each chunk."""
    folder = files.path(QUEUES, folder_name(TopicQueue(state.topic_queue)))
    if state.start_position > state.end_position:
        report.damaged(folder, None, "begins behind its end")
        return
    position = state.start_position
    chunk_entries = _chunk_entries(files, folder, report) if position < state.end_position else 0
    while chunk_entries > 0 and position < state.end_position:
        number = position // chunk_entries
        end = min((number + 1) * chunk_entries, state.end_position)
        path = f"{folder}/{chunk_name(number)}"
        try:
            units = _verified_chunk(files, path, number, state, end - number * chunk_entries)
            if (units["topic_queue"] != state.topic_queue).any():
                report.damaged(path, ENTRIES_AT, "has entries of another queue")
            blobs.verify(units[position - number * chunk_entries :], path, report)
        except READ_ERRORS as error:
            report.caught(error, path)
        position = end


def _chunk_entries(files: ShardFiles, folder: str, report: Report) -> int:
    """Entries of a chunk, by the size of the largest; 0 where there is none."""
    sizes = [0]
    for name in files.disk.list(folder) if files.disk.exists(folder) else []:
        try:
            with closing(files.disk.open(f"{folder}/{name}")) as file:
                sizes.append((file.size() - ENTRIES_AT) // UNIT_BYTES)
        except FileNotFoundError:
            continue  # trimmed since it was listed
    if max(sizes) <= 0:
        report.damaged(folder, None, "has no chunk, or none that is long enough")
    return max(sizes)


def _verified_chunk(
    files: ShardFiles, path: str, number: int, state: QueueState, count: int
) -> Units:
    """The first `count` entries of a chunk. Raises `CorruptFile`."""
    file, header = files.open_checked(path, FileType.CONSUME_QUEUE)
    with closing(file):
        queue = TopicQueue(state.topic_queue)
        seal, _ = find_seal(files.disk, path, header.identity, number, queue, count)
        raw = file.pread(count * UNIT_BYTES, ENTRIES_AT)
    if len(raw) < count * UNIT_BYTES or crc32c(raw) != seal.entries_crc:
        raise errors.CorruptFile(
            f"its first {count} entries fail their CRC32C", file=path, offset=ENTRIES_AT
        )
    return np.frombuffer(raw, UNIT)


def verify_chunk(files: ShardFiles, path: str, report: Report) -> None:
    """One chunk by itself: what its intact seals are over."""
    file, header = files.open_checked(path, FileType.CONSUME_QUEUE)
    with closing(file):
        for seal, _ in chunk_seals(files.disk, path, header, file).values():
            raw = file.pread(seal.entry_count * UNIT_BYTES, ENTRIES_AT)
            if crc32c(raw) != seal.entries_crc:
                report.damaged(
                    path, ENTRIES_AT, f"its first {seal.entry_count} entries fail their CRC32C"
                )


def verify_queues(
    files: ShardFiles, manifest: Checkpoint, report: Report, *, log_start: Offset
) -> None:
    """All queues, and the acknowledgements that reach into them."""
    blobs = Blobs(files, log_start)
    try:
        for state in manifest.queues:
            verify_queue(files, state, blobs, report)
    finally:
        blobs.close()
    where = files.path("checkpoint")
    ends = {state.topic_queue: state.end_position for state in manifest.queues}
    for ack in manifest.acks:
        last = ack.floor_position + sum(ack.resolved_range_deltas)
        if last > ends.get(ack.topic_queue, 0):
            report.damaged(
                where,
                None,
                f"group {ack.group_id} has resolved position {last - 1} of queue"
                f" {ack.topic_queue:08x}, which ends at {ends.get(ack.topic_queue, 0)}",
            )
    own_count = TOPIC_ID_MAX - (manifest.next_internal_topic_id or TOPIC_ID_MAX)
    # No topic was ever deleted.
    is_whole = manifest.next_topic_id + own_count <= len(manifest.topics) + 1
    released = sum(ends.values())
    if is_whole and released != manifest.cursor.released_count:
        report.damaged(
            where,
            None,
            f"{manifest.cursor.released_count} were released, and the queues got {released}",
        )
    known = {topic.topic_id for topic in manifest.topics}
    for topic_queue in ends:
        if topic_of(topic_queue) not in known:
            report.damaged(where, None, f"queue {topic_queue:08x} is of no topic")


# --- sequence index and tombstones --------------------------------------------------------------


def verify_sequences(files: ShardFiles, manifest: Checkpoint, report: Report) -> None:
    """Every block below the manifest's count, and the entries behind the last whole one."""
    count = manifest.sequence_index_count
    if count != manifest.next_sequence:
        report.damaged(
            files.path("checkpoint"),
            None,
            f"{count} sequences are indexed, and {manifest.next_sequence} were given",
        )
    blocks, rest = divmod(count, BLOCK_ENTRIES)
    for number in range(-(-blocks // CHUNK_BLOCKS)):
        path = sequence_path(files, number)
        try:
            of_file = min(CHUNK_BLOCKS, blocks - number * CHUNK_BLOCKS)
            for first, entries in blocks_of(files, path, number, of_file):
                if ((entries & np.uint64(3)) > _STATE_MAX).any():
                    report.damaged(path, None, f"has an unknown state behind sequence {first}")
        except READ_ERRORS as error:
            report.caught(error, path)
    if rest:
        _verify_tail(files, blocks, rest, report)


def _verify_tail(files: ShardFiles, blocks: int, rest: int, report: Report) -> None:
    """The tail may be of a later checkpoint: then their block is whole, or it has more entries."""
    path = tail_path(files)
    try:
        first, entries = read_tail(files, path)
        wanted = blocks * BLOCK_ENTRIES
        if first > wanted:
            number, at = divmod(blocks, CHUNK_BLOCKS)
            for _ in blocks_of(files, sequence_path(files, number), number, at + 1):
                pass
        elif first < wanted or len(entries) < rest:
            report.damaged(path, None, f"has no {rest} entries from sequence {wanted} on")
    except READ_ERRORS as error:
        report.caught(error, path)


def verify_tombstones(files: ShardFiles, manifest: Checkpoint, report: Report) -> None:
    """Every page up to the manifest's length."""
    if not manifest.tombstone_file:
        return
    path = tombstone_path(files, manifest.tombstone_file)
    try:
        count = Cancelled(files, manifest).count
    except READ_ERRORS as error:
        report.caught(error, path)
        return
    if count > manifest.cancelled_count:
        report.damaged(
            files.path(TOMBSTONES),
            None,
            f"{count} messages are marked as cancelled, and {manifest.cancelled_count} were",
        )


def verify_manifest(
    files: ShardFiles, manifest: Checkpoint, report: Report, facts: LogFacts
) -> None:
    """That manifest and log agree on where the views stand."""
    found = facts.sequence_at_applied
    if found is not None and found != manifest.next_sequence:
        report.damaged(
            files.path("checkpoint"),
            None,
            f"the next sequence is {manifest.next_sequence} at offset {manifest.applied_offset},"
            f" and the log has {found} there",
        )
