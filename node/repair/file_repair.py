"""Rewrite damaged files of a shard with good bytes: closed segments of the log, and delay logs.

A segment is looked through to its end; what is damaged in it is fetched from other replicas, batch
by batch. A delay log gets the messages whose bytes were found elsewhere. The new file takes the
name of the old one when it is durable and verified (storage/files/rewrite.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from hourwheel import errors
from hourwheel.types import Offset, SequenceNumber
from node.repair.peer_reads import MESSAGES_MAX
from node.repair.peers import Peers
from node.shard.checkpoint import ShardPlace
from node.shard.message_lookup import Wanted
from node.shard.shard import Shard
from node.telemetry import logs
from node.telemetry.stats import EngineStats
from storage.files.disk import File
from storage.files.file_header import FileType, pack_file_header
from storage.files.rewrite import Patch, rewrite
from storage.log.segment import SegmentInfo
from storage.log.segment_mend import SegmentMend
from timewheel.bodies import Place
from timewheel.run_format import delay_log_path

_LOOK_BYTES: Final = 1 << 20
_FETCH_BYTES: Final = 64 << 10
_ROOM_BYTES: Final = 1 << 20
"""What else is to be free when a segment is copied."""
PATCH_BYTES_MAX: Final = 64 << 20
"""Of one segment: with more damage a copy of everything is the better repair."""
_log = logs.get(__name__)

Aside: TypeAlias = Callable[[Callable[[Callable[[], None]], Any]], Awaitable[Any]]
"""Runs `work(pause)` on the thread on which files of the shard are removed."""


class FileRepair:
    """See the top of this file. On the event loop's thread; one file at a time."""

    def __init__(
        self,
        place: ShardPlace,
        shard: Shard,
        stats: EngineStats,
        aside: Aside,
        wake: Callable[[], None],
    ) -> None:
        """Of a shard. Nothing is fetched before `peers` is set: a node alone has none.

        Args:
            place: of the shard's files.
            shard: whose log it is.
            stats: where it is counted.
            aside: a file must not be removed between the look at it and the rename.
            wake: lets the log be written, if only to begin a segment.
        """
        self._place, self._shard, self._stats, self._aside = place, shard, stats, aside
        self._wake = wake
        self._turn = asyncio.Lock()
        self.delay_log_bytes: Callable[[int], int | None] = lambda _: None
        """How long a delay log is by the manifest; None: it is not named any more."""
        self.peers: Peers | None = None

    def find_closed(self, offset: Offset) -> SegmentInfo | None:
        """The segment that an offset lies in, if nothing is written to it any more.

        Nothing of it may be cut any more either: it is committed.
        """
        shard = self._shard
        for one in shard.log.segments()[:-1]:
            if one.start_offset <= offset < one.end_offset <= shard.high_watermark:
                return one
        return None

    async def mend_at(self, offset: Offset) -> bool:
        """Repair the log at an offset below what is committed. Returns whether it is sound there.

        Raises:
            FsyncFailed, DiskFailed: stop the process.
        """
        log = self._shard.log
        if offset < log.start_offset:
            return True  # past retention
        segment = self.find_closed(offset)
        if segment is None:  # it is still written to: close it, and come again
            self._close(offset)
            return False
        try:
            return await self.mend_segment(segment)
        except FileNotFoundError:
            return False  # past retention, as the next look at it tells; or lost
        except (errors.DiskFull, errors.ShuttingDown) as error:
            _log.warning("file_repair_postponed", **logs.fields_of(error))
            return False

    def _close(self, offset: Offset) -> None:
        """Let what is written next go into another segment than that of `offset`.

        An idle shard does not wait for somebody's batch; one that has no room for the copy does,
        and leaves what room there is to the log.
        """
        log = self._shard.log
        last = log.segments()[-1]
        size = last.end_offset - last.start_offset
        if last.start_offset <= offset and self._place.disk.free_bytes() > size + _ROOM_BYTES:
            log.roll_behind(offset)
            self._wake()

    async def mend_segment(self, segment: SegmentInfo) -> bool:
        """Rewrite a closed segment. False: no node has all the bytes now, or too many are needed.

        Raises:
            DiskFull: there is no room for the new file.
            FileNotFoundError: the segment was removed meanwhile.
            FsyncFailed, DiskFailed: stop the process.
        """
        async with self._turn:
            mend = SegmentMend(self._place.disk, self._place.identity, segment)
            try:
                if not await self._fill(mend):
                    return False
                if mend.is_needed:
                    await self._aside(mend.rewrite)
            except errors.CorruptLog as error:  # the new file, as it was verified
                _log.error("file_repair_failed", **logs.fields_of(error))
                return False
            finally:
                mend.close()
            self._shard.log.reopen(segment.start_offset)
            if mend.is_needed:
                self._stats.repaired_files += 1
                _log.warning(
                    "segment_repaired",
                    file=segment.path,
                    bytes=mend.patch_bytes,
                )
            return True

    async def _fill(self, mend: SegmentMend) -> bool:
        while not mend.is_done:
            try:
                fault = await asyncio.to_thread(mend.look_on, _LOOK_BYTES)
            except errors.DiskFailed as error:
                _log.error("damaged_file_unreadable", **logs.fields_of(error))
                return False
            if fault is None:
                continue
            if self.peers is None or mend.patch_bytes > PATCH_BYTES_MAX:
                return False
            raw = await self.peers.fetch_log(fault, _FETCH_BYTES, mend.fits)
            if raw is None:
                raw = await self._put_together(mend, fault, self.peers)
            if raw is None:
                return False
            mend.put(raw)
        return True

    async def _put_together(self, mend: SegmentMend, offset: Offset, peers: Peers) -> bytes | None:
        """A batch that no node has whole, of its messages: each may be sound somewhere."""
        kept = dict(self._shard.bodies.overlay.items())
        raw, bad = await asyncio.to_thread(_damaged_messages, mend, offset, kept)
        while bad:
            found = await peers.fetch_messages([wanted for _, wanted in bad[:MESSAGES_MAX]])
            if not found:
                return None
            for ordinal, blob in found.items():
                at = bad[ordinal][0]
                raw[at : at + len(blob)] = blob
            bad = [one for ordinal, one in enumerate(bad) if ordinal not in found]
        return bytes(raw) if raw and mend.fits(bytes(raw)) else None

    async def mend_delay_log(self, number: int, patches: Sequence[Patch]) -> None:
        """Put the bytes of messages into a delay log; one that is missing is made again.

        What else was in that one is zeros, until it is looked for, too. Raises as `mend_segment`.
        """
        path = delay_log_path(self._place.under("wheel"), number)
        header = pack_file_header(FileType.DELAY_LOG, self._place.identity, number)
        wanted = [Patch(0, header), *patches]

        def check(copy: File) -> None:
            for position, raw in wanted:
                if copy.pread(len(raw), position) != raw:
                    raise errors.CorruptFile(f"{copy.path}: what was written is not there")

        def work(pause: Callable[[], None]) -> None:
            size = self.delay_log_bytes(number)
            if size is None:
                raise FileNotFoundError(path)  # it is not needed any more
            disk = self._place.disk
            rewrite(disk, path, wanted, check=check, pause=pause, bytes_min=size)

        async with self._turn:
            await self._aside(work)
            self._shard.bodies.reopen(number)
            self._stats.repaired_files += 1
            _log.warning("delay_log_repaired", file=path, messages=len(patches))


def _damaged_messages(
    mend: SegmentMend, offset: Offset, kept: dict[Place, bytes]
) -> tuple[bytearray, list[tuple[int, Wanted]]]:
    """(the batch at `offset` with what is `kept` put in, where which of its messages are damaged).

    Empty where more than messages is damaged.
    """
    batch = mend.find_half_sound()
    if batch is None:
        return bytearray(), []
    lengths = batch.body_len.astype(np.int64) + batch.meta_len
    starts = batch.blob_offset + np.cumsum(lengths) - lengths
    raw = bytearray(b"".join((batch.head, batch.payload)))
    bad: list[tuple[int, Wanted]] = []
    columns = (starts, batch.crc, batch.due_ms, batch.topic_queue, batch.meta_len, batch.body_len)
    rows = zip(*(one.tolist() for one in columns), strict=True)
    for sequence, row in enumerate(rows, batch.header.base_sequence):
        at, crc, due_ms, queue, meta_bytes, body_bytes = row
        wanted = Wanted(
            due_ms=due_ms,
            sequence=SequenceNumber(sequence),
            topic_queue=queue,
            position=None,
            crc=crc,
            meta_bytes=meta_bytes,
            body_bytes=body_bytes,
        )
        if wanted.is_right(memoryview(raw)[at : at + wanted.size_bytes]):
            continue
        found = kept.get(Place(0, offset + at))
        if found is not None and wanted.is_right(found):
            raw[at : at + len(found)] = found
        else:
            bad.append((at, wanted))
    return raw, bad
