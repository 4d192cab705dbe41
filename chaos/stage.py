"""Where a scenario plays: a cluster under load, and what faults have cost.

A scenario's round says what goes wrong; the stage takes it down, waits for what must come of it,
and looks at the clock. Nothing is judged here: see chaos/autopsy.py.
"""

import asyncio
import random
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final

from chaos.cluster import Cluster
from chaos.faults import Nodes
from chaos.history import Accepted, Fault, Sent, body_of
from chaos.machine import PowerDisk, Tmpfs
from chaos.message_mix import FAR_MS, FAR_MS_MAX
from chaos.node_process import NodeProcess
from chaos.principals import LOAD
from chaos.workload import TOPICS, Workload
from hourwheel import AsyncProducer, Columns
from hourwheel.clock import SystemClock

_SOME_EVENTS: Final = 40
_PREFILL_MESSAGES: Final = 10_000


@dataclass
class Stage:
    """See the top of this file."""

    cluster: Cluster
    load: Workload
    chooser: random.Random
    disk: PowerDisk | None = None
    """Where the scenario needs one of its own."""
    rooms: dict[str, Tmpfs] = field(default_factory=dict)
    """Small disks: node id -> where its data is, in scenarios that need `room` or `rooms`."""
    failovers_ms: list[float] = field(default_factory=list)
    """From a fault that ends a mastership to the first message that the next master delivers."""
    handed_out_ms: list[float] = field(default_factory=list)
    """The same, but to when that master handed it out, by its clock: without what clients add,
    whose calls to the former master may still be under way."""
    clock: SystemClock = field(default_factory=SystemClock)

    async def prefill(self, count: int) -> None:
        """Publish so many messages that fall due long after the run: a backlog for takeovers."""
        history, now_ms = self.load.history, int(self.clock.wall_ms())
        topic = next(iter(TOPICS))
        async with self._producer() as producer:
            for first in range(0, count, _PREFILL_MESSAGES):
                serials = [
                    history.next_serial() for _ in range(min(_PREFILL_MESSAGES, count - first))
                ]
                due_ms = [now_ms + self.chooser.randint(FAR_MS, FAR_MS_MAX) for _ in serials]
                bodies = [body_of(serial) for serial in serials]
                for serial, at in zip(serials, due_ms, strict=True):
                    history.sent[serial] = Sent(topic, at, now_ms)
                ids = await producer.publish_batch(topic, Columns(bodies=bodies, due_ms=due_ms))
                for serial, message_id in zip(serials, ids, strict=True):
                    history.accepted[serial] = Accepted(message_id, self.clock.wall_ms())

    async def publish_ahead(self, count: int, delay_ms: int) -> None:
        """Publish so many messages that fall due during a fault which is to come."""
        history, topic = self.load.history, next(iter(TOPICS))
        now_ms = int(self.clock.wall_ms())
        serials = [history.next_serial() for _ in range(count)]
        for serial in serials:
            history.sent[serial] = Sent(topic, now_ms + delay_ms, now_ms)
        columns = Columns(
            bodies=[body_of(serial) for serial in serials], due_ms=[now_ms + delay_ms] * count
        )
        async with self._producer() as producer:
            ids = await producer.publish_batch(topic, columns)
        for serial, message_id in zip(serials, ids, strict=True):
            history.accepted[serial] = Accepted(message_id, self.clock.wall_ms())

    def _producer(self) -> AsyncProducer:
        return AsyncProducer(self.cluster.servers, **self.load.options(LOAD))

    async def master(self) -> NodeProcess:
        """Who is it now."""
        return await self.cluster.master()

    async def a_follower(self) -> NodeProcess:
        """Any node that is not the master."""
        return self.chooser.choice(self.cluster.followers(await self.cluster.master()))

    async def pass_ms(self, duration_ms: float) -> None:
        """Let real nodes have real time."""
        await asyncio.sleep(duration_ms / 1_000)

    async def some_load(self, events: int = _SOME_EVENTS) -> None:
        """Wait for answers, some to publishers and some to consumers."""
        load = self.load
        until = load.event_count + self.chooser.randint(events // 2, events)
        publishes = load.publish_count + 3
        deliveries = len(load.history.deliveries) + 10
        await load.wait_for(
            lambda: (
                load.event_count >= until
                and load.publish_count >= publishes
                and len(load.history.deliveries) >= deliveries
            )
        )

    async def a_moment(self) -> None:
        """Let the seed choose when a fault comes."""
        await self.pass_ms(self.chooser.random() * 300)

    async def ends_mastership(
        self,
        name: str,
        nodes: Nodes,
        fault: AbstractAsyncContextManager[None],
        *,
        hold_ms: float = 0.0,
        heals_first: bool = False,
        whole: bool = True,
    ) -> None:
        """A fault after which another master must serve, before it is healed.

        Args:
            name: of the fault.
            nodes: those that it hits.
            fault: what to do, and to undo.
            hold_ms: how much longer it lasts.
            heals_first: no one can serve before it is healed: the time is taken from there.
            whole: all nodes are well after it, and are waited for.
        """
        epoch = self.cluster.epoch()
        begun_ms = requested_ms = self.clock.wall_ms()
        seen = len(self.load.history.deliveries)
        async with fault:
            if not heals_first:
                await self._served_after(epoch, seen, requested_ms)
            await self.pass_ms(hold_ms)
            if heals_first:
                requested_ms = self.clock.wall_ms()
        self.note(name, nodes, begun_ms)
        if heals_first:
            await self._served_after(epoch, seen, requested_ms)
        if whole:
            await self.cluster.whole()

    async def _served_after(self, epoch: int, seen: int, requested_ms: float) -> None:
        deliveries = self.load.history.deliveries
        at = seen

        def is_served() -> bool:
            nonlocal at
            while at < len(deliveries) and deliveries[at].epoch <= epoch:
                at += 1
            return at < len(deliveries)

        await self.load.wait_for(is_served)
        self.failovers_ms.append(deliveries[at].seen_ms - requested_ms)
        self.handed_out_ms.append(deliveries[at].receive_ms - requested_ms)

    async def bothers(
        self,
        name: str,
        nodes: Nodes,
        fault: AbstractAsyncContextManager[None],
        *,
        hold_ms: float = 0.0,
    ) -> None:
        """A fault during which service goes on."""
        begun_ms = self.clock.wall_ms()
        async with fault:
            await self.some_load()
            await self.pass_ms(hold_ms)
        self.note(name, nodes, begun_ms)
        await self.cluster.whole()

    def note(self, name: str, nodes: Nodes, begun_ms: float) -> None:
        """Take down a fault that has just been healed."""
        who = tuple(node.node_id for node in nodes)
        self.load.history.faults.append(Fault(name, who, begun_ms, self.clock.wall_ms()))
