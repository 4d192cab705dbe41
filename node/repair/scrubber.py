"""Reads everything, slowly, again and again, and says what is damaged. A shell.

The log, the files of the views, and the messages in delay logs. Each piece is read and verified in
a thread of its own, and then it rests: `bytes_per_s` is an upper bound, and so is one part in fifty
of a core. What is looked at, and how, is in storage/log/scrub.py and node/repair/view_scrub.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import FIRST_OFFSET, Offset
from node.repair.view_scrub import BadMessages, ViewScrub
from node.telemetry.failure import Failure
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
_LOOK_AGAIN_S: Final = 1.0
"""Before what seems to be damaged is looked at once more: by then it may be in its new place."""
PASS_S_MIN: Final = 3_600.0
"""A pass begins so long after the one before it, and after a repair: a small log would be read all
the time, and one that is damaged everywhere would be copied from here to there all the time."""


@dataclass(frozen=True)
class ScrubSource:
    """What is looked at."""

    disk: Disk
    identity: Identity
    log: CommitLog
    committed_offset: Callable[[], Offset]
    directory: str
    """The shard's folder."""
    manifest: Callable[[], Checkpoint]
    """What the last checkpoint says; never changed, but replaced."""


@dataclass(frozen=True)
class ScrubSinks:
    """Take what was found, on the event loop's thread."""

    on_log: Callable[[errors.CorruptLog], None]
    """Once of each damaged segment, as long as it is there."""
    on_view: Callable[[errors.CorruptFile], None]
    """Once of each damaged file of the views, until a pass finds it well."""
    on_messages: Callable[[BadMessages], None]
    """Of messages in delay logs, in each pass."""


class Scrubber:
    """See the top of this file. On the event loop's thread."""

    def __init__(
        self,
        source: ScrubSource,
        stats: EngineStats,
        failure: Failure,
        *,
        bytes_per_s: int,
        sinks: ScrubSinks,
        now_ms: Callable[[], int],
        first_s: float = FIRST_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Begin after `first_s` seconds.

        Args:
            source: what to look at.
            stats: counts what is read and found.
            failure: takes a bug.
            bytes_per_s: more than 0.
            sinks: take what is found.
            now_ms: dates the passes, and chooses where one begins.
            first_s: when the first pass begins.
            sleep: waits for so many seconds; for tests.
        """
        self._source, self._stats, self._failure = source, stats, failure
        self._bytes_per_s, self._sinks = bytes_per_s, sinks
        self._now_ms, self._first_s, self._sleep = now_ms, first_s, sleep
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "hourwheel-scrub")
        self._damaged: set[str] = set()
        self._damaged_views: set[str] = set()
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
                await self._pass_log()
                await self._pass_views()
                self._stats.scrub_passes += 1
                self._stats.scrub_pass_ms = self._now_ms()
                await self._sleep(max(0.0, begun_s + PASS_S_MIN - self._loop.time()))

    async def _pass_log(self) -> None:
        """All segments once: from somewhere on, and then those before it."""
        log = self._source.log
        begin = find_begin(log.segments(), self._now_ms())
        here = {one.path for one in log.segments()}
        self._note_damaged(self._damaged & here)
        for start, end in ((begin, None), (FIRST_OFFSET, begin)):
            at = start
            while (segment := self._find(at)) and (end is None or segment.start_offset < end):
                await self._check(segment)
                at = segment.end_offset

    def _find(self, at: Offset) -> SegmentInfo | None:
        return find_next(self._source.log.segments(), self._source.committed_offset(), at)

    async def _check(self, segment: SegmentInfo) -> None:
        check = SegmentCheck(self._source.disk, self._source.identity, segment)
        try:
            while True:
                begun_s = self._loop.time()
                count = await self._loop.run_in_executor(self._thread, check.run, _STEP_BYTES)
                if not count:
                    break
                await self._rest(count, begun_s)
        except FileNotFoundError:
            return  # retention was quicker
        except errors.CorruptLog as error:
            self._take(segment, error)
        else:
            self._note_damaged(self._damaged - {segment.path})
        finally:
            self._thread.submit(check.close)  # in the thread that may still be reading

    async def _rest(self, count: int, begun_s: float, least_s: float = 0.0) -> None:
        """So many bytes were found well since `begun_s`."""
        self._stats.scrub_bytes += count
        worked_s = self._loop.time() - begun_s
        await self._sleep(max(least_s, count / self._bytes_per_s, _REST_RATIO * worked_s))

    async def _pass_views(self) -> None:
        """All files of the views, and what they point at."""
        source, seen = self._source, set[str]()
        scrub = ViewScrub(source.disk, source.directory, source.identity, source.log)
        try:
            while True:
                begun_s = self._loop.time()
                count = await self._loop.run_in_executor(
                    self._thread, scrub.run, _STEP_BYTES, source.manifest()
                )
                self._take_views(scrub, seen)
                if count is None:
                    break
                await self._rest(count, begun_s, _LOOK_AGAIN_S if scrub.is_doubtful else 0.0)
        finally:
            self._thread.submit(scrub.close)  # in the thread that may still be reading
        self._note_damaged_views(seen)

    def _take_views(self, scrub: ViewScrub, seen: set[str]) -> None:
        """Report what was found; `seen` gets what is damaged in this pass."""
        damaged, scrub.damaged = scrub.damaged, []
        for error in damaged:
            path = str(error.params["file"])
            is_news = path not in self._damaged_views
            seen.add(path)
            self._note_damaged_views(self._damaged_views | seen)
            if is_news:
                self._stats.crc_errors += 1
                self._sinks.on_view(error)
        messages, scrub.messages = scrub.messages, []
        for found in messages:
            self._sinks.on_messages(found)

    def _note_damaged_views(self, paths: set[str]) -> None:
        self._damaged_views = set(paths)
        self._stats.scrub_damaged_views = len(paths)

    def _take(self, segment: SegmentInfo, error: errors.CorruptLog) -> None:
        is_news = segment.path not in self._damaged
        self._note_damaged(self._damaged | {segment.path})
        if is_news:
            self._stats.crc_errors += 1
            self._sinks.on_log(error)

    def _note_damaged(self, paths: set[str]) -> None:
        self._damaged = paths
        self._stats.scrub_damaged_segments = len(paths)
