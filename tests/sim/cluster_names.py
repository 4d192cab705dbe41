"""Names that come and go by themselves in a simulated cluster: used, left alone, deleted.

The node's part is the real one (node/catalog, the housekeeping of leases), on a loop of the
simulation; here is what node/broker/engine.py does around it, and who uses the names.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.formats.record_batch import Kind, RecordBatch, build_publish
from hourwheel.internal.v1.state_pb2 import ConfigChange
from hourwheel.types import NO_GROUP, GroupId, TopicId
from node.catalog.changes import DefaultsConfig
from node.catalog.name_expiry import NameExpiry
from node.catalog.service import CatalogService
from node.consumers.housekeeping import Housekeeping
from node.delivery.deliveries import ReceiveLimits
from node.delivery.resolve_rows import ack_rows, retry_rows
from node.replica.mastership import Mastership, Proposer
from node.telemetry.stats import EngineStats
from tests.sim.catalog_control import NodeCatalogControl
from tests.sim.cluster_clients import Client
from tests.sim.event_loop import SimLoop
from tests.support.shard_proposals import ATTEMPTS_MAX, body_of

if TYPE_CHECKING:
    from chaos.log_model import LogModel
    from tests.sim.cluster import Cluster
    from tests.sim.cluster_node import SimNode

IDLE_MS: Final = 120
TOPICS: Final = ("tea", "coffee", "milk", "juice", "water")
GROUPS: Final = ("cups", "mugs")
"""Of each topic: `tea-cups`, and so on; now and then one of them receives from another topic."""
DEFAULTS: Final = DefaultsConfig(
    topics_auto_create_by_receiving=True,
    group_idle_ms=IDLE_MS,
    topic_idle_ms=IDLE_MS,
    attempts_max=ATTEMPTS_MAX,
    invisible_ms=150,
    retry_delay_ms=40,
    retry_delay_ms_max=200,
)
RETENTION_MS: Final = 250
"""As far as names go; nothing is trimmed."""
_AHEAD_MS: Final = 100
"""What is dispatched ahead of its time is seen in its queue so much before."""
_SESSION_CALLS: Final = 6
"""After so many calls, on the average, a visitor goes on to other names."""


class _Caller:
    """Who waits for the result of a record."""

    def __init__(self, names: "NodeNames", future: "asyncio.Future[Any]") -> None:
        self._names, self._future = names, future

    def answer(self, result: Any, error: HourwheelError | None) -> None:
        """See `node.replica.mastership.Proposer`."""
        node = self._names.node
        tell = partial(self._names.tell, self._future, result, error)
        node.later(node.cluster.events.random.random(), tell)


class NodeNames:
    """One mastership of a node: what its services do for topics and groups. A `Serving`."""

    def __init__(self, node: "SimNode", mastership: Mastership) -> None:
        self.node, self.mastership, self.stats = node, mastership, EngineStats()
        self.failures: list[HourwheelError] = []
        self.now_ms = node.cluster_ms
        self.loop = SimLoop(node)  # type: ignore[abstract]
        self.loop.run_here(self._open)

    def _open(self) -> None:
        self.housekeeping = Housekeeping(self)
        self.catalog_service = CatalogService(
            self,
            DEFAULTS,
            resolve_filtered=lambda *_: None,
            on_filter=lambda *_: None,
            control=None if self.node.cluster.control.owned is None else self._control,
        )
        self.expiry = NameExpiry(
            self,
            self.catalog_service,
            DEFAULTS,
            retention_ms=RETENTION_MS,
            are_some_waiting=lambda: False,
        )
        self.mastership.hold(self.expiry)
        self.mastership.hold(self.catalog_service)

    @property
    def _control(self) -> NodeCatalogControl:
        return self.node.control_link.catalog

    def look(self) -> None:
        """As the engine's timer and its housekeeping do, which come more often here."""
        self.loop.run_here(lambda: self.housekeeping.end_leases(self.node.cluster_ms()))
        self.loop.run_here(self.catalog_service.resume)
        self.loop.run_here(lambda: self.expiry.look(self.node.cluster_ms()))

    def check(self) -> None:
        """See `Serving`."""
        if not self.node.may_act or self.node.mastership is not self.mastership:
            raise errors.NotMaster("not here")

    def rearm(self) -> None:
        """The simulation looks often enough."""

    def guarded(self, step: Callable[[], None]) -> Callable[[], None]:
        """See `Serving`."""
        return step

    def fail(self, error: HourwheelError) -> None:
        """See `Serving`."""
        self.failures.append(error)

    def propose(
        self, append: Callable[[int, Proposer[Any]], None], now_ms: int | None = None
    ) -> "asyncio.Future[Any]":
        """See `node.catalog.serving.Propose`."""
        self.check()
        future = self.loop.create_future()
        append(self.node.cluster_ms() if now_ms is None else now_ms, _Caller(self, future))
        self.node.later(0, self.node.begin_write)
        return future

    def tell(
        self, future: "asyncio.Future[Any]", result: Any, error: HourwheelError | None
    ) -> None:
        """What became of a proposal; whoever awaited it may be gone."""

        def turn() -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
                future.exception()

        self.loop.run_here(turn)

    def check_tasks(self) -> None:
        """They did not fail."""
        assert not self.failures, f"names: {self.failures}"
        assert not self.loop.failures, f"names: {self.loop.failures}"

    # -- calls, as node/broker/engine.py makes them -----------------------------------------------

    async def publish(self, name: str, due_ms: list[int]) -> None:
        """Messages to a topic, which is made if need be."""
        self.check()
        await self.catalog_service.settle_topic(name)
        topic = self.catalog_service.topic_to_publish(name)
        batch = RecordBatch(build_publish(due_ms, [body_of(due) for due in due_ms]))
        queues = np.full(len(due_ms), topic.topic_id << 8, np.uint32)
        publish = self.mastership.publish
        with self.expiry.publishing(topic, self.node.cluster_ms):
            await self.propose(lambda now, who: publish(batch, batch.due_ms, queues, now, who))

    async def receive(self, group: str, topic: str, end: str) -> None:
        """What there is, and its end: "ack", "nack" or none of both."""
        subscribed = await self.catalog_service.subscribe(group, topic)
        group_id, receiver = subscribed.group.group_id, self.mastership.receiver
        with self.expiry.using(subscribed.group, self.node.cluster_ms):
            delivery = receiver.receive(
                *(group_id, subscribed.subscription.topic_id),
                ReceiveLimits(4, 1 << 20, DEFAULTS.invisible_ms, self.node.cluster_ms()),
            )
        if delivery is None or not end:
            return
        await self.loop.pause(self.node.cluster.events.random.uniform(0.0, 0.2))
        group_queue, first = delivery.lease.group_queue, int(delivery.lease.first)
        ranges = [(first, first + len(delivery.units))]
        views = self.node.shard.views
        found = views.catalog.find_group_by_id(group_id)
        if found is None:
            return
        with self.expiry.using(found, self.node.cluster_ms):
            if end == "ack":
                rows = ack_rows(group_queue, ranges)
            else:
                now_ms = self.node.cluster_ms()
                rows = retry_rows(views, found, group_queue, ranges, now_ms, None)
            if len(rows):
                await self.propose(lambda now, who: self.mastership.resolve(rows, now, who))
            receiver.leases.end(delivery.lease.lease_id)


class Visitor(Client):
    """Uses a topic and a group for a while, and then others."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        super().__init__(cluster, f"visitor-{number}")
        self._group, self._topic = GROUPS[0], TOPICS[0]
        cluster.events.later(300, self._try)

    def _try(self) -> None:
        random = self.cluster.events.random
        self.cluster.events.later(random.uniform(1, 60.0), self._try)
        if not self.cluster.is_publishing:
            return
        if random.randrange(_SESSION_CALLS) == 0:
            own, self._topic = random.choice(TOPICS), random.choice(TOPICS)
            own = own if random.random() < 0.1 else self._topic
            self._group = f"{own}-{random.choice(GROUPS)}"
        group, topic = self._group, self._topic
        if random.random() < 0.3:
            delays_ms = [random.choice((-5, 20, 150, 900)) for _ in range(random.randint(1, 3))]
            self.ask(lambda node: self._publish(node, topic, delays_ms))
        else:
            end = random.choice(("ack", "ack", "nack", ""))
            self.ask(lambda node: self._receive(node, group, topic, end))

    @staticmethod
    def _publish(node: "SimNode", topic: str, delays_ms: list[int]) -> None:
        due_ms = [node.cluster_ms() + delay_ms for delay_ms in delays_ms]
        names = node.names
        if names is not None:
            names.loop.begin(_or_not(names.publish(topic, due_ms)))

    @staticmethod
    def _receive(node: "SimNode", group: str, topic: str, end: str) -> None:
        names = node.names
        if names is not None:
            names.loop.begin(_or_not(names.receive(group, topic, end)))


async def _or_not(call: Coroutine[Any, Any, None]) -> None:
    """A call that may be refused, as many are in a cluster in trouble."""
    with suppress(HourwheelError):
        await call


def check_nothing_is_lost(model: "LogModel", batch: RecordBatch) -> bool:
    """Whether a record deletes a name, of which nothing may be missed; `model` has read up to it.

    Nobody but the master deletes here.
    """
    if batch.header.kind != Kind.CONFIG:
        return False
    change = ConfigChange.FromString(bytes(batch.blobs))
    group_id, topic_id = change.delete_group_id, change.delete_topic_id
    promised_ms = batch.header.store_ms - RETENTION_MS + _AHEAD_MS
    left: list[Any] = []
    for one in model.subscriptions:
        if topic_id == one.topic_id or group_id == one.group_id:
            left += _waits(model, TopicId(one.retry_topic_id), promised_ms, GroupId(one.group_id))
        if group_id == one.group_id:
            left += _finished_and_there(model, GroupId(group_id), TopicId(one.topic_id))
    if topic_id:
        left += _waits(model, TopicId(topic_id), promised_ms)
    assert not left, f"deleted, and would be missed: {left}"
    return bool(group_id or topic_id)


def _waits(
    model: "LogModel", topic_id: TopicId, promised_ms: int, group_id: GroupId = NO_GROUP
) -> list[Any]:
    """What is pending of a topic, or promised and not finished by a group."""
    queue = topic_id << 8
    finished = model.resolved.get((group_id, queue), set())
    entries = enumerate(model.queues.get(queue, []))
    left = [one for at, one in entries if one.release_ms >= promised_ms and at not in finished]
    return left + [one for one in model.pending if one.topic_queue == queue]


def _finished_and_there(model: "LogModel", group_id: GroupId, topic_id: TopicId) -> list[Any]:
    """What a group has finished, and a new one of its name would get."""
    queue = topic_id << 8
    finished, start = model.resolved.get((group_id, queue), set()), model.starts.get(queue, 0)
    return [(queue, at) for at in sorted(finished) if at >= start]
