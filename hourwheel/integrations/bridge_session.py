"""What a bridge process does for one of its callers: see `hourwheel.integrations.bridge`.

A frame of the caller has an operation, `op`, and a number, `n`, if it wants an answer; the answer
has the same number. Messages are pushed as frames with a `tag`, which `ack`, `nack` and `reject`
name. When the caller is gone, by whatever death, what it held is given back at once, its groups and
topics that were for the time being are deleted, and nothing of it remains.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from hourwheel import errors, limits
from hourwheel.client.message import Message, ReceivedMessage
from hourwheel.formats.frames import Frame, pack
from hourwheel.integrations import queue_admin
from hourwheel.integrations.bridge import VERSION
from hourwheel.integrations.bridge_cluster import Clusters
from hourwheel.integrations.leased_queue import LeasedQueue

POLL_WAIT_MS: Final = 20_000.0
POLL_MESSAGES_MAX: Final = 100
"""Leased at one time where the caller sets no limit."""
RETRY_S: Final = 0.5
GIVE_BACK_S: Final = 5.0
_log = logging.getLogger("hourwheel.integrations")
_Operation = Callable[[Frame], Awaitable[dict[str, Any]]]


class Session:
    """One caller. Belongs to one event loop."""

    def __init__(
        self, hello: dict[str, Any], writer: asyncio.StreamWriter, clusters: Clusters
    ) -> None:
        """Prepare what the first frame asks for. Raises InvalidArgument."""
        if hello.get("version") != VERSION:
            raise errors.FailedPrecondition("the bridge process is of another version; restart all")
        self._invisible_ms = int(hello["invisible_ms"])
        self._connect_ms = int(hello["connect_ms"])
        self._writer = writer
        self._answers: list[bytes] = []
        """To be written together, in this turn of the loop."""
        self._held: dict[int, tuple[LeasedQueue, ReceivedMessage, int]] = {}
        """By tag; with the caller's channel."""
        self._last_tag = 0
        self._counts: Counter[int] = Counter()
        """Messages that a channel of the caller holds."""
        self._limits: dict[int, int] = {}
        """How many it may hold; 0, or none given: any number."""
        self._room = asyncio.Condition()
        self._queues: dict[tuple[str, str], LeasedQueue] = {}
        """What `get` fetches from, by topic and group."""
        self._consumers: dict[int, LeasedQueue] = {}
        self._pullers: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._returning: set[asyncio.Task[None]] = set()
        """Those that give messages back."""
        self._own_groups: set[str] = set()
        self._own_topics: set[str] = set()
        self._operations: dict[str, _Operation] = {
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "get": self._get,
            "size": self._size,
            "purge": self._purge,
            "delete": self._delete,
            "bind": self._bind,
            "cancel": self._cancel,
        }
        self._clusters = clusters
        self._cluster = clusters.enter(hello)
        self._channel, self._admin = self._cluster.channel, self._cluster.admin
        self._producer = self._cluster.producer

    async def reach(self) -> None:
        """Reach a node. Raises HourwheelError."""
        try:
            async with asyncio.timeout(self._connect_ms / 1_000):
                await self._admin.status()
        except errors.PermissionDenied:
            return  # it has answered
        except TimeoutError:
            raise errors.Unavailable(f"no node of {self._channel.server} answers") from None

    async def serve(self, frame: Frame) -> None:
        """Do what a frame asks for, or begin to. In the order of frames."""
        match frame.head["op"]:
            case "publish":
                await self._publish(frame)
            case "ack":
                await self._ack(frame.head["tags"])
            case "nack":
                returning = self._nack(**frame.head)
                self._spawn(returning, self._returning)
            case "reject":
                self._spawn(self._reject(**frame.head))
            case "prefetch":
                self._limits[frame.head["channel"]] = frame.head["count"]
                await self._notify()
            case name:
                self._spawn(self._answer(frame.head["n"], self._operations[name](frame)))

    async def close(self) -> None:
        """The caller is gone."""
        for puller in self._pullers.values():
            puller.cancel()
        work = [*self._pullers.values(), *self._tasks]
        if work:
            await asyncio.wait(work, timeout=GIVE_BACK_S)
        try:
            async with asyncio.timeout(GIVE_BACK_S):
                await self._give_all_back()
        except (TimeoutError, errors.HourwheelError) as error:
            _log.warning("what a caller left behind is cleared away later: %r", error)
        for task in self._tasks:
            task.cancel()
        await self._clusters.leave(self._cluster)

    async def _give_all_back(self) -> None:
        by_queue: dict[LeasedQueue, list[ReceivedMessage]] = {}
        for queue, message, _ in self._held.values():
            by_queue.setdefault(queue, []).append(message)
        for queue, messages in by_queue.items():
            await queue.give_back(messages)
        for queue in (*self._queues.values(), *self._consumers.values()):
            await queue.close()
        for group in self._own_groups:
            await _unless_gone(self._admin.delete_group(group))
        for topic in self._own_topics:
            await _unless_gone(self._admin.delete_topic(topic))

    # --- answers and pushes ---------------------------------------------------------------------

    def _spawn(self, work: "Coroutine[Any, Any, None]", *more: "set[asyncio.Task[None]]") -> None:
        task = asyncio.create_task(work)
        for tasks in (self._tasks, *more):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _answer(self, number: int, work: Awaitable[dict[str, Any]]) -> None:
        try:
            answer = await work
        except errors.HourwheelError as error:
            answer = _described_error(error)
        except (KeyError, TypeError, ValueError) as error:
            answer = {"error": "InvalidArgument", "text": f"no such request: {error!r}"}
        body = answer.pop("body", b"")
        await self._write(Frame({"n": number, **answer}, body))

    async def _write(self, frame: Frame) -> None:
        if self._writer.is_closing():
            return
        self._writer.write(pack(frame))
        try:
            await self._writer.drain()
        except ConnectionError:
            return  # the reader sees it, too, and ends the session

    def _write_soon(self, frame: Frame) -> None:
        """Write a small answer, with the others of this moment."""
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._write_answers)
        self._answers.append(pack(frame))

    def _write_answers(self) -> None:
        answers, self._answers = self._answers, []
        if not self._writer.is_closing():
            self._writer.write(b"".join(answers))

    # --- publishing and finishing ---------------------------------------------------------------

    async def _publish(self, frame: Frame) -> None:
        """Begin to; without a task, for most of what programs ask for is this."""
        head = frame.head
        message = Message(
            frame.body,
            due_ms=head["due_ms"],
            keys=[head["key"]] if head["key"] else [],
            expire_after_ms=head["expire_after_ms"],
            content_type="application/json",
            priority=head["priority"],
        )
        try:
            soon = await self._cluster.publish_soon(head["topic"], message)
        except errors.HourwheelError as error:
            self._write_soon(Frame({"n": head["n"], **_described_error(error)}))
        else:
            soon.add_done_callback(partial(self._on_published, head["n"]))

    def _on_published(self, number: int, soon: "asyncio.Future[Any]") -> None:
        error = (
            errors.Cancelled("the bridge process ends") if soon.cancelled() else soon.exception()
        )
        said = {} if error is None else _described_error(error)
        self._write_soon(Frame({"n": number, **said}))

    def _hold(self, queue: LeasedQueue, message: ReceivedMessage, channel: int) -> int:
        self._last_tag += 1
        self._held[self._last_tag] = (queue, message, channel)
        self._counts[channel] += 1
        return self._last_tag

    async def _notify(self) -> None:
        async with self._room:
            self._room.notify_all()

    async def _ack(self, tags: list[int]) -> None:
        for tag in tags:
            found = self._held.pop(tag, None)
            if found is not None:
                found[0].ack_soon(found[1])
                self._counts[found[2]] -= 1
        await self._notify()

    async def _nack(
        self, tags: list[int], delay_ms: int, *, not_begun: bool = False, **_: object
    ) -> None:
        by_queue: dict[LeasedQueue, list[ReceivedMessage]] = {}
        for tag in tags:
            found = self._held.pop(tag, None)
            if found is not None:
                by_queue.setdefault(found[0], []).append(found[1])
                self._counts[found[2]] -= 1
        await self._notify()
        for queue, messages in by_queue.items():
            await queue.give_back(messages, delay_ms, not_begun=not_begun)

    async def _reject(self, tags: list[int], reason: str, **_: object) -> None:
        taken = [self._held.pop(tag) for tag in tags if tag in self._held]
        for _queue, _message, channel in taken:
            self._counts[channel] -= 1
        await self._notify()
        for queue, message, _channel in taken:
            await self._make_dead_letter(queue, message, reason)

    async def _make_dead_letter(
        self, queue: LeasedQueue, message: ReceivedMessage, reason: str
    ) -> None:
        raw = reason.encode(errors="replace")[: limits.NACK_REASON_BYTES_MAX]
        try:
            await queue.reject(message, raw.decode(errors="ignore"))
        except errors.HourwheelError as error:
            queue.let_go(message)
            _log.warning("%s: what was rejected comes again: %s", queue.topic, error)

    async def _find_body(self, queue: LeasedQueue, message: ReceivedMessage) -> bytes | None:
        """None: it is damaged, and a dead letter by now."""
        try:
            return message.body
        except errors.InvalidBatch as error:
            _log.warning("%s of %s is a dead letter: %s", message.message_id, queue.topic, error)
            await self._make_dead_letter(queue, message, f"{type(error).__name__}: {error}")
            return None

    # --- receiving ------------------------------------------------------------------------------

    def _queue(self, topic: str, group: str) -> LeasedQueue:
        found = self._queues.get((topic, group))
        if found is None:
            found = LeasedQueue(self._channel, topic, group, self._invisible_ms)
            self._queues[topic, group] = found
        return found

    async def _subscribe(self, frame: Frame) -> dict[str, Any]:
        head = frame.head
        if head["is_temporary"]:
            self._own_topics.add(head["topic"])
        await self._admin.put_subscription(head["group"], head["topic"])
        queue = LeasedQueue(self._channel, head["topic"], head["group"], self._invisible_ms)
        puller = asyncio.create_task(self._pull(queue, head["consumer"], head["channel"]))
        self._pullers[head["consumer"]] = puller
        self._consumers[head["consumer"]] = queue
        return {}

    async def _unsubscribe(self, frame: Frame) -> dict[str, Any]:
        """What it holds it may go on with."""
        number = frame.head["consumer"]
        puller, queue = self._pullers.pop(number, None), self._consumers.get(number)
        if puller is None or queue is None:
            return {}
        puller.cancel()
        await asyncio.wait({puller})
        if queue.is_idle:
            await self._consumers.pop(number).close()
        else:
            await queue.settle()
        return {}

    async def _pull(self, queue: LeasedQueue, consumer: int, channel: int) -> None:
        """Push messages of a queue while there is room for them."""
        while True:
            async with self._room:
                await self._room.wait_for(lambda: self._free(channel) > 0)
            try:
                found = await queue.receive(self._free(channel), POLL_WAIT_MS)
            except errors.HourwheelError as error:
                _log.warning("cannot receive from %s: %s", queue.topic, error)
                if not error.retriable and not isinstance(error, errors.InvalidBatch):
                    await self._write(Frame(_described_error(error)))
                    return
                await asyncio.sleep(RETRY_S)
                continue
            for place, message in enumerate(found):
                try:
                    async with self._room:
                        await self._room.wait_for(lambda: self._free(channel) > 0)
                except asyncio.CancelledError:
                    await queue.give_back(found[place:], not_begun=True)
                    raise
                await self._push(queue, message, consumer, channel)

    def _free(self, channel: int) -> int:
        limit = self._limits.get(channel, 0) or POLL_MESSAGES_MAX + self._counts[channel]
        return min(limit - self._counts[channel], POLL_MESSAGES_MAX)

    async def _push(
        self, queue: LeasedQueue, message: ReceivedMessage, consumer: int, channel: int
    ) -> None:
        body = await self._find_body(queue, message)
        if body is None:
            return
        tag = self._hold(queue, message, channel)
        await self._write(Frame({"consumer": consumer, **_described(message, tag)}, body))

    async def _get(self, frame: Frame) -> dict[str, Any]:
        """The next message. What the caller gave back before is there to be had again."""
        if self._returning:
            await asyncio.wait(self._returning)
        queue = self._queue(frame.head["topic"], frame.head["group"])
        while found := await queue.receive(1, frame.head["wait_ms"]):
            body = await self._find_body(queue, found[0])
            if body is not None:
                tag = self._hold(queue, found[0], frame.head["channel"])
                return {**_described(found[0], tag), "body": body}
        return {}

    # --- queues ---------------------------------------------------------------------------------

    async def _size(self, frame: Frame) -> dict[str, Any]:
        head = frame.head
        return {"ready": await queue_admin.count_ready(self._admin, head["topic"], head["group"])}

    async def _purge(self, frame: Frame) -> dict[str, Any]:
        head = frame.head
        return {"count": await queue_admin.purge(self._admin, head["topic"], head["group"])}

    async def _delete(self, frame: Frame) -> dict[str, Any]:
        """A topic, or the group of a queue that gets what is published to all."""
        if group := frame.head.get("group"):
            self._own_groups.discard(group)
            await _unless_gone(self._admin.delete_group(group))
        else:
            self._own_topics.discard(frame.head["topic"])
            await _unless_gone(self._admin.delete_topic(frame.head["topic"]))
        return {}

    async def _bind(self, frame: Frame) -> dict[str, Any]:
        """A group of its own, which begins now, for a queue that gets what is published to all."""
        group, topic = frame.head["group"], frame.head["topic"]
        await _unless_gone(self._admin.delete_group(group))
        await self._admin.put_group(group, start="now")
        self._own_groups.add(group)
        await self._admin.put_subscription(group, topic)
        return {}

    async def _cancel(self, frame: Frame) -> dict[str, Any]:
        """Pending messages by key: in the topics that are named, and those of the group.

        Where the group has never received, its topics are not known: all are looked at.
        """
        topics = set(frame.head["topics"])
        try:
            group = await self._admin.get_group(frame.head["group"])
            topics.update(one.topic for one in group.subscriptions)
        except errors.UnknownGroup:
            topics.update(one.name for one in await self._admin.topics())
        count = 0
        for topic in sorted(topics):
            try:
                found = await self._producer.cancel_by_keys(topic, frame.head["keys"])
            except errors.UnknownTopic:
                continue
            count += sum(one.cancelled_count for one in found)
        return {"count": count}


def _described(message: ReceivedMessage, tag: int) -> dict[str, Any]:
    return {"tag": tag, "attempt": message.attempt, "due_ms": message.due_ms}


def _described_error(error: BaseException) -> dict[str, Any]:
    return {"error": type(error).__name__, "text": str(error)}


async def _unless_gone(deleting: Awaitable[None]) -> None:
    try:
        await deleting
    except errors.NotFound:
        return
