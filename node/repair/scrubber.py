"""Reads old log, slowly, all of it again and again, and says where it is damaged. A shell.

Each piece is read and verified in a thread of its own, and then it rests: `bytes_per_s` is an upper
bound, and so is one part in fifty of a core. What is looked at, and how, is in
storage/log/scrub.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from hourwheel import errors
from node.contracts.broker import Failure
from node.telemetry.stats import EngineStats
from storage.files.disk import Disk
from storage.files.file_header import Identity
from storage.log.commit_log import CommitLog
from storage.log.scrub import SegmentCheck, find_begin, find_next
from storage.log.segment import SegmentInfo

_STEP_BYTES: Final = 64 << 10
"""About 1 ms where each batch has one small message: so long others may wait for Python's lock."""
_REST_RATIO: Final = 50.0
"""It rests at least so many times as long as it worked: small batches are verified more slowly."""
FIRST_S: Final = 60.0
"""A node that has just started has other things to do."""
PASS_S_MIN: Final = 3_600.0
"""A pass begins so long after the one before it, and after a repair: a small log would be read all
the time, and one that is damaged everywhere would be copied from here to there all the time."""


@dataclass(frozen=True)
class ScrubSource:
    """What is looked at."""

    disk: Disk
    identity: Identity
    log: CommitLog
    committed_offset: Callable[[], int]


class Scrubber:
    """See the top of this file. On the event loop's thread."""

    def __init__(
        self,
        source: ScrubSource,
        stats: EngineStats,
        failure: Failure,
        *,
        bytes_per_s: int,
        on_damage: Callable[[errors.CorruptLog], None],
        now_ms: Callable[[], int],
        first_s: float = FIRST_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Begin after `first_s` seconds.

        Args:
            source: what to look at.
            stats: where it is counted.
            failure: is told of a bug.
            bytes_per_s: more than 0.
            on_damage: is told once of each damaged segment, as long as it is there.
            now_ms: any clock; chooses where the first pass begins.
            first_s: when the first pass begins.
            sleep: waits for so many seconds; for tests.
        """
        self._source, self._stats, self._failure = source, stats, failure
        self._bytes_per_s, self._on_damage = bytes_per_s, on_damage
        self._now_ms, self._first_s, self._sleep = now_ms, first_s, sleep
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "hourwheel-scrub")
        self._damaged: set[str] = set()
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        """End, when the piece that is being verified is done."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await asyncio.to_thread(self._thread.shutdown)

    def on_mended(self, error: errors.DataLoss) -> None:
        """A file in which damage was found is sound again."""
        self._note_damaged(self._damaged - {str(error.params.get("file", ""))})

    async def _run(self) -> None:
        with self._failure.catching():
            await self._sleep(self._first_s)
            while True:
                begun_s = self._loop.time()
                await self._pass()
                self._stats.scrub_passes += 1
                await self._sleep(max(0.0, begun_s + PASS_S_MIN - self._loop.time()))

    async def _pass(self) -> None:
        """All segments once: from somewhere on, and then those before it."""
        log = self._source.log
        begin = find_begin(log.segments(), self._now_ms())
        here = {one.path for one in log.segments()}
        self._note_damaged(self._damaged & here)
        for start, end in ((begin, None), (0, begin)):
            at = start
            while (segment := self._find(at)) and (end is None or segment.start_offset < end):
                await self._check(segment)
                at = segment.end_offset

    def _find(self, at: int) -> SegmentInfo | None:
        return find_next(self._source.log.segments(), self._source.committed_offset(), at)

    async def _check(self, segment: SegmentInfo) -> None:
        check = SegmentCheck(self._source.disk, self._source.identity, segment)
        try:
            while True:
                begun_s = self._loop.time()
                count = await self._loop.run_in_executor(self._thread, check.run, _STEP_BYTES)
                if not count:
                    break
                self._stats.scrub_bytes += count
                worked_s = self._loop.time() - begun_s
                await self._sleep(max(count / self._bytes_per_s, _REST_RATIO * worked_s))
        except FileNotFoundError:
            return  # retention was quicker
        except errors.CorruptLog as error:
            self._take(segment, error)
        else:
            self._note_damaged(self._damaged - {segment.path})
        finally:
            self._thread.submit(check.close)  # in the thread that may still be reading

    def _take(self, segment: SegmentInfo, error: errors.CorruptLog) -> None:
        is_news = segment.path not in self._damaged
        self._note_damaged(self._damaged | {segment.path})
        if is_news:
            self._stats.crc_errors += 1
            self._on_damage(error)

    def _note_damaged(self, paths: set[str]) -> None:
        self._damaged = paths
        self._stats.scrub_damaged_segments = len(paths)
