"""What the master does about messages that it cannot read: local damage is local (decision 0019).

    found when read --> withheld from the group --> good bytes are looked for: in the file again,
    in the log, in other replicas --> served at once, from memory --> the file is rewritten

Nothing of it goes into the log. Where no replica has the bytes, the message stays withheld, and the
master looks for them again and again. The message counts as lag until it can be read, or until an
operator gives it up.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.types import NO_GROUP, NO_TOPIC, GroupId, Offset, TopicId, TopicQueue, topic_of
from node.catalog.serving import Propose
from node.delivery.damaged import DamagedBytes, DamagedEntry, DamagedMessages
from node.delivery.deliveries import Corrupt
from node.delivery.receiver import Receiver
from node.delivery.resolve_rows import ack_rows, dead_rows
from node.repair.file_repair import FileRepair
from node.repair.peer_reads import MESSAGES_MAX
from node.repair.record_mender import RecordMender
from node.replica.mastership import Mastership
from node.shard.group_queue import GroupQueue
from node.shard.message_lookup import MessageLookup, Wanted
from node.shard.shard import Shard
from node.telemetry import logs
from node.telemetry.failure import Failure
from node.telemetry.stats import EngineStats
from storage.files.rewrite import Patch
from storage.views.unit import Units, copied
from timewheel.bodies import BadBlob, Place, place_of

MANY: Final = 1_024
"""So many damaged messages of one mastership are no accident any more: another node should be the
master, which need not fetch what it delivers."""
_SAY_S: Final = 10.0
"""An event is logged so often at most; what was left out is counted in the next line."""
_log = logs.get(__name__)


class Pace(NamedTuple):
    """How often to try again, in seconds."""

    again_s_min: float = 0.2
    again_s_max: float = 30.0
    files_s: float = 0.5
    """Between two looks at which files can be rewritten."""


@dataclass(slots=True)
class _Said:
    at_s: float
    left_out: int = 0


class DamageControl:
    """See the top of this file. On the event loop's thread."""

    def __init__(
        self,
        shard: Shard,
        files: FileRepair,
        stats: EngineStats,
        failure: Failure,
        *,
        wake: Callable[[set[TopicQueue]], None],
        pace: Pace | None = None,
    ) -> None:
        """Nothing is damaged yet, and nothing is served: `serve` comes with a mastership.

        Args:
            shard: whose messages these are.
            files: rewrites damaged files; knows the peers.
            stats: where it is counted.
            failure: gets a bug, or what else must end the process.
            wake: serves the polls that wait for messages of these queues.
            pace: how often to try again.
        """
        self._shard, self.files, self._stats, self._failure = shard, files, stats, failure
        self._wake = wake
        self._resolve: Callable[[NDArray[np.void]], Awaitable[object]] = _refuse
        self._receiver = Receiver(shard.views, shard.bodies)
        self._pace = pace or Pace()
        self.records = RecordMender(
            files,
            stats,
            failure,
            again_s_min=self._pace.again_s_min,
            again_s_max=self._pace.again_s_max,
        )
        """Of records that no message's bytes are taken from."""
        self._loop = asyncio.get_running_loop()
        self._lookup = MessageLookup(shard.views, shard.log, shard.bodies)
        self.damaged = DamagedMessages()
        """Of one mastership; another one begins with none."""
        self.on_many: Callable[[errors.DataLoss], None] = lambda _: None
        """Called once in a mastership, when `MANY` were found."""
        self._news = asyncio.Event()
        self._fetching: asyncio.Task[None] | None = None
        self._mending: asyncio.Task[None] | None = None
        self._said: dict[str, _Said] = {}
        self._is_closing = False

    # -- masterships ------------------------------------------------------------------------------

    def serve(self, mastership: Mastership, propose: Propose) -> None:
        """Look after what this mastership cannot read; `propose` appends an operator's decision."""
        self._resolve = lambda rows: propose(lambda now, who: mastership.resolve(rows, now, who))
        self._receiver = mastership.receiver
        self.damaged = DamagedMessages()
        mastership.hold(self)

    def close(self, _: HourwheelError) -> None:
        """The mastership is over. The repair of files goes on, for what is kept in memory."""
        self._resolve = _refuse
        self.damaged = DamagedMessages()
        self._news.set()
        self._count()

    # -- finding ----------------------------------------------------------------------------------

    def take_found(self, now_ms: int) -> None:
        """Withheld by the receiver, which could not read them: look for their bytes."""
        receiver = self._receiver
        found, receiver.corrupt = receiver.corrupt, []
        for one in found:
            if self._note_news(self.damaged.note(one, now_ms)):
                self._say_withheld(one.error)
        self._begin()

    def take_listed(self, units: Units, bad: Iterable[BadBlob]) -> None:
        """Met by a listing of pending messages, which could not read them: look for their bytes."""
        for ordinal, error in bad:
            unit = copied(units[ordinal : ordinal + 1])
            if self._note_news(self.damaged.note_listed(unit, error)):
                self._say_withheld(error)
        self._begin()

    def take_scrubbed(self, units: Units, bad: Iterable[BadBlob], now_ms: int) -> None:
        """Found by the scrubber, on any replica: look for their bytes, unless they are gone by now.

        It is repaired like what groups wait for, and listed where no replica has it.
        """
        for ordinal, error in bad:
            unit = copied(units[ordinal : ordinal + 1])
            if self._is_gone(place_of(unit)):
                continue
            if self._note_news(self.damaged.note_scrubbed(unit, error, now_ms)):
                self._log_seldom("error", "scrub_damage_found", **logs.fields_of(error))
        self._begin()

    def _note_news(self, news: DamagedBytes | None) -> bool:
        """Count a place, if it is news. Returns whether it is."""
        if news is None:
            return False
        self._stats.crc_errors += 1
        if self.damaged.found_count == MANY:
            self.on_many(news.error)
        return True

    def _say_withheld(self, error: errors.DataLoss) -> None:
        self._log_seldom("error", "damaged_message_withheld", **logs.fields_of(error))

    def _begin(self) -> None:
        self._count()
        self._news.set()
        if self._fetching is None and len(self.damaged) and not self._is_closing:
            self._fetching = self._loop.create_task(self._fetch_all())

    def _count(self) -> None:
        self._stats.damaged_messages = self.damaged.count
        self._stats.scrub_damaged_messages = self.damaged.scrubbed_count

    def _log_seldom(self, level: str, event: str, **fields: Any) -> None:
        """Log one line an event and `_SAY_S`: a damaged disk has many messages."""
        said, now_s = self._said.get(event), self._loop.time()
        if said is not None and now_s < said.at_s + _SAY_S:
            said.left_out += 1
            return
        if said is not None and said.left_out:
            fields["left_out"] = said.left_out
        self._said[event] = _Said(now_s)
        getattr(_log, level)(event, **fields)

    # -- good bytes -------------------------------------------------------------------------------

    async def _fetch_all(self) -> None:
        with self._failure.catching():
            while len(self.damaged):
                due = self.damaged.due(self._loop.time(), MESSAGES_MAX)
                if due:
                    await self._fetch(due)
                    continue
                self._news.clear()
                next_s = self.damaged.next_s()
                wait_s = 0.0 if next_s is None else max(0.0, next_s - self._loop.time())
                try:
                    async with asyncio.timeout(wait_s):
                        await self._news.wait()
                except TimeoutError:
                    pass
        self._fetching = None

    async def _fetch(self, due: list[DamagedBytes]) -> None:
        """Look for the bytes of these, and serve those that are found."""
        damaged, missing = self.damaged, list[DamagedBytes]()
        healed = list[DamagedBytes]()
        for one in due:
            if self._is_settled(one):
                continue
            (healed if self._find_here(one) else missing).append(one)
            await asyncio.sleep(0)
        peers = self.files.peers
        if missing and peers is not None:
            wanted = [Wanted.of(one.unit, one.position) for one in missing]
            found = await peers.fetch_messages(wanted)
            for ordinal, raw in found.items():
                self._keep(missing[ordinal], raw)
                healed.append(missing[ordinal])
            missing = [one for ordinal, one in enumerate(missing) if ordinal not in found]
        if damaged is not self.damaged:
            return  # another mastership has begun; what was found is kept for it
        self._heal(healed)
        for one in missing:
            self._put_off(one)
        self._make_room()
        self._count()

    def _is_settled(self, one: DamagedBytes) -> bool:
        """Forget entries that no group waits for any more. Returns whether none is left."""
        views, leases = self._shard.views, self._receiver.leases
        if not one.entries:
            is_over = one.scrubbed is not None and (
                self._is_gone(one.place) or bool(views.tombstones.contains(one.unit["sequence"])[0])
            )
            if is_over:
                self.damaged.take(one.place)
            return is_over
        for entry in list(one.entries.values()):
            group_queue, position = entry.group_queue, entry.position
            is_there = (
                views.catalog.find_group_by_id(group_queue.group_id) is not None
                and views.catalog.find_topic_by_id(topic_of(group_queue.topic_queue)) is not None
                and views.queues.get(group_queue.topic_queue).start_position <= position
                and not views.acks.get(*group_queue).is_resolved(position)
            )
            if not is_there:
                self.damaged.drop(entry)
                leases.settle(group_queue, position)
        return not one.is_kept

    def _is_gone(self, place: Place) -> bool:
        """Whether its delay log was removed: with all that needed it."""
        return bool(place.dlog_id) and self.files.delay_log_bytes(place.dlog_id) is None

    def _find_here(self, one: DamagedBytes) -> bool:
        """Whether this node has the bytes after all."""
        shard, place = self._shard, one.place
        if one.tries:  # an operator may have put a sound file there
            shard.bodies.reopen(place.dlog_id)
            if not place.dlog_id and place.position >= shard.log.start_offset:
                shard.log.reopen(Offset(place.position))
        if not shard.bodies.read(one.unit)[1]:
            return True
        raw = self._lookup.find_in_log(Wanted.of(one.unit, None)) if place.dlog_id else None
        if raw is not None:
            self._keep(one, raw)
        return raw is not None

    def _keep(self, one: DamagedBytes, raw: bytes) -> None:
        """Serve a message from memory until its file is rewritten."""
        self._shard.bodies.overlay.put(one.place, raw)
        self._stats.damaged_fetched += 1
        self._log_seldom("warning", "damaged_message_restored", error=one.error.message)
        if self._mending is None and not self._is_closing:
            self._mending = self._loop.create_task(self._mend_all())

    def _heal(self, healed: list[DamagedBytes]) -> None:
        """Offer these again to the groups that wait for them."""
        queues: set[TopicQueue] = set()
        for one in healed:
            for entry in self.damaged.take(one.place):
                end = entry.position + 1
                self._receiver.offer_again(entry.group_queue, entry.position, end)
                queues.add(entry.group_queue.topic_queue)
        if queues:
            self._count()
            self._wake(queues)

    def _put_off(self, one: DamagedBytes) -> None:
        one.tries += 1
        pace = self._pace
        wait_s = min(pace.again_s_max, pace.again_s_min * 2.0 ** min(one.tries - 1, 30))
        one.again_s = self._loop.time() + wait_s
        if not one.is_kept:
            self.damaged.take(one.place)  # the next listing asks anew
        elif one.tries == 1:
            self._log_seldom("error", "damaged_message_unavailable", error=one.error.message)

    def _make_room(self) -> None:
        """What is withheld and not known one by one is delivered, or found damaged, again."""
        if not self.damaged.overflowed or self.damaged.is_full:
            return
        receiver, queues = self._receiver, set[TopicQueue]()
        for group_queue in self.damaged.overflowed:
            known = set(self.damaged.positions(group_queue))
            for first, end in receiver.leases.withheld_ranges(group_queue):
                for position in range(first, end):
                    if position not in known:
                        receiver.offer_again(group_queue, position, position + 1)
            queues.add(group_queue.topic_queue)
        self.damaged.overflowed.clear()
        self._wake(queues)

    # -- files ------------------------------------------------------------------------------------

    async def _mend_all(self) -> None:
        """Rewrite the files of what is kept in memory; those that cannot be yet, later."""
        again_s: dict[tuple[int, int], float] = {}
        waits_s: dict[tuple[int, int], float] = {}
        with self._failure.catching():
            while files := self._damaged_files():
                for file, patches in files.items():
                    if again_s.get(file, 0.0) > self._loop.time():
                        continue
                    if not await self._mend(*file, patches):
                        waits_s[file] = min(
                            self._pace.again_s_max, 2 * waits_s.get(file, self._pace.again_s_min)
                        )
                        again_s[file] = self._loop.time() + waits_s[file]
                await asyncio.sleep(self._pace.files_s)
        self._mending = None

    def _damaged_files(self) -> dict[tuple[int, int], list[Patch]]:
        """(number of a delay log, or 0; offset of a segment) -> what is kept of it in memory."""
        log, overlay = self._shard.log, self._shard.bodies.overlay
        found: dict[tuple[int, int], list[Patch]] = {}
        starts = [int(one.start_offset) for one in log.segments()]
        for place, raw in overlay.items():
            if place.dlog_id:
                found.setdefault((place.dlog_id, 0), []).append(Patch(place.position, raw))
            elif place.position < log.start_offset:
                overlay.drop(place)  # past retention
            else:
                at = bisect_right(starts, place.position) - 1
                found.setdefault((0, starts[at]), []).append(Patch(place.position, raw))
        return found

    async def _mend(self, number: int, start: int, patches: list[Patch]) -> bool:
        """Rewrite one file; see `_damaged_files`. Returns whether it is sound now."""
        try:
            if number:
                await self.files.mend_delay_log(number, patches)
            elif not await self.files.mend_at(Offset(start)):
                return False
        except (FileNotFoundError, errors.ShuttingDown):
            return False  # removed, with all that needed it; or lost, and memory is what there is
        except (errors.DiskFull, errors.CorruptFile) as error:
            self._log_seldom("error", "file_repair_postponed", **logs.fields_of(error))
            return False
        for one in patches:
            self._shard.bodies.overlay.drop(Place(number, one.position))
        return True

    # -- an operator's word -----------------------------------------------------------------------

    def listed(
        self, group_id: GroupId = NO_GROUP, topic_id: TopicId = NO_TOPIC, after_serial: int = 0
    ) -> list[tuple[DamagedBytes, DamagedEntry]]:
        """What waits, of a group and published to a topic; 0: any."""
        return [
            (at, one)
            for at, one in self.damaged.entries(after_serial)
            if group_id in {0, one.group_queue.group_id}
            and topic_id in {0, int(one.unit["origin_topic"][0])}
        ]

    async def discard(self, entries: list[DamagedEntry]) -> list[DamagedEntry]:
        """Give these up, but those that can be read by now. Returns which were given up.

        They become dead letters of their group: the bytes may turn up, or another replica have
        them. What is a dead letter already is done with.

        Raises:
            HourwheelError: whatever appending raises; nothing is given up then.
        """
        shard, views = self._shard, self._shard.views
        gone, rows = list[DamagedEntry](), list[NDArray[np.void]]()
        for entry in entries:
            is_damaged = bool(shard.bodies.read(entry.unit)[1])
            if is_damaged and not views.acks.get(*entry.group_queue).is_resolved(entry.position):
                of = [(entry.position, entry.position + 1)]
                rows_of = ack_rows if self._is_dead_letter_queue(entry.group_queue) else dead_rows
                rows.append(rows_of(entry.group_queue, of))
                gone.append(entry)
        if not gone:
            return []
        all_rows, damaged, receiver = np.concatenate(rows), self.damaged, self._receiver
        for entry in gone:  # so that they are not delivered meanwhile; they stay withheld
            damaged.drop(entry)
        try:
            await self._resolve(all_rows)
        except HourwheelError as error:
            for entry in gone if damaged is self.damaged else ():
                lost = errors.DataLoss(f"not discarded: {error.message}")
                damaged.note(
                    Corrupt(entry.group_queue, entry.position, entry.unit, lost), entry.found_ms
                )
            self._begin()
            raise
        for entry in gone:
            receiver.leases.settle(entry.group_queue, entry.position)
        self._make_room()
        self._count()
        _log.warning("damaged_messages_discarded", messages=len(gone))
        return gone

    def _is_dead_letter_queue(self, group_queue: GroupQueue) -> bool:
        """Whether these are a group's own dead letters: to dead-letter them again never ends."""
        group = self._shard.views.catalog.find_group_by_id(group_queue.group_id)
        return group is not None and group.dead_letter_topic_id == topic_of(group_queue.topic_queue)

    # -- the end ----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Look for nothing any more."""
        self._is_closing = True
        await self.records.stop()
        tasks = [one for one in (self._fetching, self._mending) if one is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _refuse(_: NDArray[np.void]) -> Awaitable[object]:
    raise errors.NotMaster("no node is the master now; try again")
