"""A master that is stopped for five seconds and goes on: it serves and dispatches nothing any more.

Shown on real processes under load: what is asked of it on a connection that was open before, what
its clients got, and what is in the logs.
"""

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from chaos.faults import frozen
from chaos.history import Accepted, Sent, body_of
from chaos.message_mix import QUICK_MIX
from chaos.runner import Options, play
from chaos.scenarios import Scenario
from chaos.stage import Stage
from chaos.stored import LogFiles
from hourwheel import AsyncAdmin, AsyncProducer, Message, errors
from hourwheel.formats.record_batch import Kind
from hourwheel.transport.grpc_errors import failure_of
from hourwheel.v1 import admin_pb2, broker_pb2, consumer_pb2
from hourwheel.v1.admin_pb2_grpc import AdminServiceStub
from hourwheel.v1.broker_pb2_grpc import ProducerServiceStub
from hourwheel.v1.consumer_pb2_grpc import ConsumerServiceStub
from tests.support.eventually import until
from tests.support.reaper import say

SEED: Final = 9
STOPPED_MS: Final = 5_000.0
LEAD_MS: Final = 50.0
"""Messages are handed out by a clock that may be so far from this process's."""
REDIRECT: Final = (("hourwheel-redirect", "1"),)
"""Without it a node that is not the master passes a call on, and that is no answer of its own."""
QUIET: Final = "quiet"
"""A topic in which a message falls due while the old master is stopped."""
ROUNDS: Final = 20
IS_SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
STOPPED: Final = (True, False) if IS_SOAK else (True,)
"""Both processes of the node, or its broker alone."""


@dataclass
class Seen:
    """What one round has found out."""

    epoch: int = 0
    """Of the mastership that was stopped."""
    stopped_ms: float = 0.0
    refusals: list[BaseException | object] = field(default_factory=list)
    may_act: list[bool] = field(default_factory=list)


class OldMaster:
    """Asks a node, and no other, over one connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._producer = ProducerServiceStub(channel)
        self._consumer = ConsumerServiceStub(channel)
        self._admin = AdminServiceStub(channel)

    async def publish(self) -> Any:
        forged = broker_pb2.OutgoingMessage(body=b"forged")
        request = broker_pb2.PublishRequest(topic="alpha", messages=[forged])
        return await self._producer.Publish(request, metadata=REDIRECT)

    async def receive(self, topic: str, group: str, wait_ms: int = 0) -> Any:
        request = consumer_pb2.ReceiveRequest(
            group=group, topic=topic, max_messages=10, wait_ms=wait_ms
        )
        return await self._consumer.Receive(request, metadata=REDIRECT)

    async def may_act(self) -> bool:
        told = await self._admin.GetStatus(admin_pb2.GetStatusRequest(), metadata=REDIRECT)
        return bool(told.shards[0].may_act)

    def ask(self) -> list["asyncio.Future[Any]"]:
        """Publish and receive, where there is something to be received, without waiting."""
        asked = (self.publish(), self.receive("alpha", "alpha-all"), self.receive(QUIET, QUIET))
        return [asyncio.ensure_future(one) for one in asked]


async def make_quiet_topic(stage: Stage, old: OldMaster) -> None:
    async with AsyncAdmin(stage.cluster.servers) as admin:
        await admin.create_topic(QUIET)
    assert not (await old.receive(QUIET, QUIET)).delivery_batch  # from now on the group reads it


async def publish_quietly(stage: Stage) -> None:
    """One message that is due at once: the new master has it."""
    history, now_ms = stage.load.history, stage.clock.wall_ms()
    serial = history.next_serial()
    history.sent[serial] = Sent(QUIET, int(now_ms), int(now_ms))
    async with AsyncProducer(stage.cluster.servers) as producer:
        message = Message(body_of(serial), due_ms=int(now_ms))
        history.accepted[serial] = Accepted(
            await producer.publish(QUIET, message), stage.clock.wall_ms()
        )


async def stop_and_ask(stage: Stage, seen: Seen, *, whole: bool) -> None:
    """One round."""
    node = await stage.master()
    seen.epoch = stage.cluster.epoch()
    async with grpc.aio.insecure_channel(node.api) as channel:
        await channel.channel_ready()
        old = OldMaster(channel)
        await make_quiet_topic(stage, old)
        calls: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(old.receive(QUIET, QUIET, wait_ms=20_000))
        ]
        await until(lambda: len(stage.load.history.deliveries) > 200)
        begun_ms = stage.clock.monotonic_ms()
        async with frozen([node], whole=whole):
            seen.stopped_ms = stage.clock.wall_ms()
            calls += old.ask()  # these lie in its socket, and are the first that it sees
            await stage.cluster.master(after_epoch=seen.epoch)
            await publish_quietly(stage)
            await stage.some_load()
            await stage.pass_ms(STOPPED_MS - (stage.clock.monotonic_ms() - begun_ms))
        stage.note("SIGSTOP for 5 s", [node], seen.stopped_ms)
        assert node.is_running, "it has not given itself up"
        for _ in range(ROUNDS):
            calls += old.ask()
            seen.may_act.append(await old.may_act())
            await asyncio.wait(calls)
        seen.refusals = await asyncio.gather(*calls, return_exceptions=True)
    await stage.some_load()
    await stage.cluster.whole()


@pytest.mark.parametrize("whole", STOPPED)
async def test_I4_master_that_was_stopped_for_5_s_serves_and_dispatches_nothing(  # noqa: N802
    tmp_path: Path, whole: bool
) -> None:
    seen = Seen()

    async def round_of(stage: Stage) -> None:
        await stop_and_ask(stage, seen, whole=whole)

    options = Options(tmp_path, rounds=1, mix=QUICK_MIX, hang_s=60.0, keeps_all=True)
    result = await play(Scenario("stopped", "SIGSTOP for 5 s", round_of, 1), SEED, options, say)
    assert result.is_good, result.report()
    check_answers(seen)
    check_deliveries(result.history.deliveries, seen)
    for log in (tmp_path / f"stopped-{SEED}").glob("n*/data"):
        check_log(LogFiles(log), seen.epoch)


def check_answers(seen: Seen) -> None:
    """It has refused everything, and knows that it may not act."""
    assert len(seen.refusals) == 1 + 3 * (1 + ROUNDS)
    for one in seen.refusals:
        assert isinstance(one, grpc.aio.AioRpcError), one
        assert isinstance(failure_of(one).error, errors.NotMaster | errors.Timeout), one
    assert not any(seen.may_act)


def check_deliveries(deliveries: list[Any], seen: Seen) -> None:
    """Nobody got a message from it after it was stopped; others' came on."""
    late = [one for one in deliveries if one.receive_ms > seen.stopped_ms + LEAD_MS]
    assert late
    assert {one.epoch for one in late if one.epoch <= seen.epoch} == set()


def check_log(log: LogFiles, epoch: int) -> None:
    """No record of the old epoch lies behind the beginning of the new one."""
    batches = [one.header for one in log.scan(log.start_offset, 1 << 62)]
    (begun, *_) = [
        one.offset for one in batches if one.kind == Kind.EPOCH_START and one.epoch > epoch
    ]
    dispatches = [one for one in batches if one.kind == Kind.DISPATCH]
    assert [one for one in batches if one.offset >= begun and one.epoch <= epoch] == []
    assert {one.epoch > epoch for one in dispatches if one.offset > begun} == {True}
    assert {one.epoch <= epoch for one in dispatches if one.offset < begun} == {True}
