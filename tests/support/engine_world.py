"""A real engine on a real disk, whose clock a test moves by hand; nothing waits for time to pass.

async with EngineWorld(tmp_path) as world:
    await world.publish(world.now_ms + 5_000)
    world.advance(5_000)
    delivery = await world.receive(wait_ms=60_000)
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from hourwheel.errors import HourwheelError
from hourwheel.filter_language.inputs import Sql
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import as_filter
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import FIRST_SHARD
from hourwheel.v1 import meta_pb2
from node.broker.disk_guard import DiskGuard
from node.broker.engine import Engine
from node.broker.master_service import MasterService
from node.broker.settings import EngineConfig
from node.catalog.changes import DefaultsConfig
from node.cluster.member import ClusterMember
from node.cluster.standalone import elected
from node.contracts.broker import (
    Delivery,
    GroupInfo,
    IncomingMessages,
    PublishedBatchResult,
    ReceiveParams,
    Selection,
    SubscriptionInfo,
    TopicInfo,
)
from node.contracts.control import CatalogControl
from node.contracts.ending import ACKED, Ending
from node.contracts.publishing import PublishedOne
from node.repair.damage_control import Pace
from node.replica.mastership import Mastership
from node.shard.checkpoint import ShardPlace
from node.shard.dispatcher import DispatchConfig
from node.shard.recovery import Opened, ShardConfig, open_shard
from node.telemetry.failure import Failure
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
from tests.support.lone_engine import GivenTime, make_alone
from tests.support.receipts import receipt_of

START_MS: Final = 1_800_000_000_000
LEAD_MS: Final = 20
"""How long before its due time a message is dispatched; so much that the gate can be seen."""
LONG_TEXT: Final = "lorem ipsum " * 2_600
"""31 KB, and none of the following searches finds anything in it."""
SEARCHES: Final = Sql(" OR ".join(f"p CONTAINS 'xyz{number}'" for number in range(110)))
OFTEN: Final = Pace(again_s_min=0.001, again_s_max=0.01, files_s=0.001)
"""How worlds of tests look for damaged bytes again."""
_CLUSTER_ID: Final = bytes(range(16))
_HANG_S: Final = 120.0
_SHARD: Final = ShardConfig(dispatch=DispatchConfig(lead_ms_min=LEAD_MS, lead_ms_max=LEAD_MS))

Answer = TypeVar("Answer")


class EngineWorld:
    """See the top of this file. `opened`, `engine` and so on are of the latest start."""

    opened: Opened
    engine: Engine
    member: ClusterMember
    failure: Failure
    guard: DiskGuard

    def __init__(
        self, root: Path, config: EngineConfig | None = None, shard: ShardConfig = _SHARD
    ) -> None:
        """Files go below `root`. By default receiving makes topics, for short tests."""
        self.now_ms = START_MS
        self.disk = RealDisk(root)
        makes_topics = DefaultsConfig(topics_auto_create_by_receiving=True)
        config = config or EngineConfig(defaults=makes_topics)
        self._config, self._shard = replace(config, damage_pace=OFTEN), shard
        self._boots = 0
        self.control: CatalogControl | None = None
        """Who decides about topics and groups from the next start on; None: the log alone."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Start a process, as it were."""
        self._boots += 1
        self.failure = Failure()
        self.guard = DiskGuard(self.disk, free_bytes_min=0, reserve_bytes=0)
        place = ShardPlace(self.disk, "shard-0", Identity(_CLUSTER_ID, FIRST_SHARD))
        self.opened = open_shard(place, self._shard)
        self.monotonic_ms = 0.0
        time = GivenTime(lambda: self.now_ms, monotonic_ms=lambda: self.monotonic_ms)
        lone = make_alone(self.opened, self._config, time, self.guard, self.failure, self._boots)
        self.engine, self.member = lone.engine, lone.member
        self.engine.catalog_control = self.control
        await within(lone.serve())

    @property
    def service(self) -> MasterService:
        """What it does as master."""
        assert self.engine.service is not None
        return self.engine.service

    @property
    def mastership(self) -> Mastership:
        """Its present one."""
        return self.service.mastership

    async def close(self) -> None:
        """Stop cleanly."""
        await within(self.member.close())
        await within(self.engine.close())

    def step_down(self) -> None:
        """End the mastership: somebody else is master from now on."""
        self.member.replica.step_down("a test says so")
        self.member.perform()

    def become_master(self) -> None:
        """Begin to take over again, in the next epoch."""
        replica = self.member.replica
        self.member.on_state(elected(self.opened, replica.identity, replica.assignment.epoch))

    async def restart(self) -> None:
        """Stop cleanly and start again."""
        await self.close()
        await self.open()

    def advance(self, by_ms: int) -> None:
        """The clock moves on, and the engine's timer looks at it soon."""
        self.now_ms += by_ms
        self.engine.rearm()

    async def failed(self) -> HourwheelError:
        """Why the node cannot go on."""
        return await within(asyncio.shield(self.failure.found))

    def topics(self, *, include_internal: bool = False) -> list[TopicInfo]:
        """All topics, by name."""
        return self.engine.topics("", 1_000, include_internal=include_internal)

    def group(self, name: str = "billing") -> GroupInfo:
        """One group, with lags and subscriptions."""
        return self.engine.group(name, 0, 1_000)

    def groups(self) -> list[GroupInfo]:
        """All groups, by name."""
        return self.engine.groups("", 1_000)

    async def publish(self, *due_ms: int, topic: str = "orders") -> PublishedBatchResult:
        """One batch; the body of each message is its due time."""
        bodies = [b"%d" % due for due in due_ms]
        batch = RecordBatch(build_publish(list(due_ms), bodies))
        return await within(self.engine.publish_batch(topic, batch))

    async def publish_steps(self, count: int, step_ms: int = 1_000) -> list[int]:
        """Messages at even distances, each released when it is published; when that was."""
        dues_ms = []
        for _ in range(count):
            await self.publish(self.now_ms)
            dues_ms.append(self.now_ms)
            self.advance(step_ms)
        return dues_ms

    async def publish_joined(
        self,
        *topics: tuple[str, int],
        tags: tuple[str, ...] = (),
        producer: int = 0,
        first: int = 0,
    ) -> PublishedBatchResult:
        """One batch for several topics, due at once: so many messages for each, by its name."""
        bodies = [name.encode() for name, count in topics for _ in range(count)]
        meta = encode(MessageMeta(tags=tags)) if tags else None
        raw = build_publish(
            [self.now_ms] * len(bodies),
            bodies,
            metas=meta and [meta.raw] * len(bodies),
            tag_genes=meta and [meta.tag_gene] * len(bodies),
            gene_spec=DEFAULT_SPEC.number if meta else 0,
            producer_id=producer,
            producer_sequence=first,
        )
        return await within(self.engine.publish_joined(list(topics), RecordBatch(raw)))

    async def publish_tagged(
        self, *tags: str, topic: str = "orders", gene_spec: int = DEFAULT_SPEC.number
    ) -> PublishedBatchResult:
        """One batch, due at once: a message for each text, with the tags in it ("paid eu")."""
        metas = [encode(MessageMeta(tags=tuple(text.split()))) for text in tags]
        raw = build_publish(
            [self.now_ms] * len(tags),
            [text.encode() for text in tags],
            metas=[meta.raw for meta in metas],
            tag_genes=[meta.tag_gene for meta in metas],
            gene_spec=gene_spec,
        )
        return await within(self.engine.publish_batch(topic, RecordBatch(raw)))

    async def publish_texts(
        self, *texts: str, due_ms: int | None = None, topic: str = "orders"
    ) -> PublishedBatchResult:
        """One batch, due at once if nothing is said: a message for each text, its property "p"."""
        metas = [meta_pb2.MessageMeta(properties=[{"name": "p", "value": text}]) for text in texts]
        raw = build_publish(
            [self.now_ms if due_ms is None else due_ms] * len(texts),
            [b"%d" % number for number in range(len(texts))],
            metas=[meta.SerializeToString() for meta in metas],
        )
        return await within(self.engine.publish_batch(topic, RecordBatch(raw)))

    async def publish_single(self, due_ms: int, topic: str = "orders") -> list[PublishedOne]:
        """One message, which may share its batch with other callers'."""
        incoming = IncomingMessages(topic, [due_ms], [b"%d" % due_ms], [b""], [0], [0])
        return await within(self.engine.publish_messages(incoming))

    async def receive(
        self,
        *,
        topic: str = "orders",
        group: str = "billing",
        count: int = 32,
        wait_ms: int = 0,
        invisible_ms: int = 0,
        wanted: str | FilterExpression | None = None,
    ) -> Delivery | None:
        """Lease messages. `wanted`: a filter; a text is one by tags."""
        return await within(
            self.engine.receive(
                ReceiveParams(
                    *(group, topic, count, 1 << 20, wait_ms, invisible_ms, as_filter(wanted))
                )
            )
        )

    async def leased(
        self,
        *,
        topic: str = "orders",
        count: int = 32,
        invisible_ms: int = 0,
        wanted: str | FilterExpression | None = None,
    ) -> Delivery:
        """Messages that are there, or come as soon as the engine's threads are done."""
        found = await self.receive(
            topic=topic, count=count, wait_ms=600_000, invisible_ms=invisible_ms, wanted=wanted
        )
        assert found is not None
        return found

    async def put_subscription(
        self, wanted: str, *, group: str = "billing", topic: str = "orders"
    ) -> SubscriptionInfo:
        """What the group wants from now on, by tags."""
        expression = FilterExpression.tags(wanted)
        return await within(self.engine.put_subscription(group, topic, expression))

    async def ack(self, *selections: Selection, group: str = "billing") -> list[ReceiptOutcome]:
        """Acknowledge."""
        return await within(self.engine.resolve(group, list(selections), ACKED))

    async def nack(
        self, *selections: Selection, delay_ms: int | None = None, group: str = "billing"
    ) -> list[ReceiptOutcome]:
        """Give back."""
        return await within(
            self.engine.resolve(group, list(selections), Ending(retry_delay_ms=delay_ms))
        )

    async def look_for_unused(self, steps: int = 20) -> None:
        """As housekeeping does once a second, so often that a round goes to its end."""
        for _ in range(steps):
            self.service.expiry.look(self.now_ms)
            await let_others_run()
            await within(self.engine.group_commit.drain())

    async def trim(self) -> None:
        """As retention does: of what was released, whole chunks go."""
        self.mastership.trim(self.now_ms, self.now_ms)
        self.engine.group_commit.wake()
        await within(self.engine.group_commit.drain())

    def select(self, delivery: Delivery, first: int = 0, count: int | None = None) -> Selection:
        """Messages [first, first + count) of a delivery, by default all behind `first`."""
        size = len(delivery.units)
        receipt = receipt_of(self.engine, delivery)
        return Selection(receipt, first, size - first if count is None else count)


async def within(answer: Awaitable[Answer]) -> Answer:
    """What is awaited; a test that hangs says where, and none depends on how long it takes."""
    async with asyncio.timeout(_HANG_S):
        return await answer


async def let_others_run() -> None:
    """Give everything on the loop that can go on the time to do so."""
    for _ in range(100):
        await asyncio.sleep(0)
