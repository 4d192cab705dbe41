"""A node alone becomes three real ones: messages, users and ids stay when it is gone."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from hourwheel import AsyncAdmin, AsyncProducer, Message, errors
from hourwheel.outcomes import RescheduleOutcome
from hourwheel.types import NodeId
from node.config.checks import cluster_nodes
from node.process.app import Node
from node.shard.node_meta import CONTROL
from node.tools.local_cluster.nodes import LocalCluster
from tests.support.audit_runs import errors_of, run_audit
from tests.support.cluster_load import TOPIC
from tests.support.eventually import until, until_told
from tests.support.kept_user import add_alice, check_alice
from tests.support.promotion import SMALL, min_in_sync, promote, receive_all, rewrite

HOUR_MS: Final = 3_600_000
COUNT: Final = 300


async def grow(cluster: LocalCluster, cluster_id: str) -> None:
    """The first node is the only member; the others join it, although it is killed meanwhile."""
    first, *others = cluster.nodes
    assert await min_in_sync(first) == 1
    async with AsyncAdmin(cluster.servers) as admin:
        found = await admin.members()
        assert [one.node_id for one in found.members] == [first.node_id]
        assert found.cluster_id == cluster_id
        nodes = cluster_nodes(first.config.cluster.nodes)
        coming = {NodeId(one.node_id): nodes[one.node_id].control for one in others}
        asked = asyncio.ensure_future(admin.change_members(coming, []))
        control = first.config.node.data_directory / CONTROL
        await until(lambda: any(control.glob("generation-0000000002*")))
        await cluster.kill_node(0)  # the only one that knows of the change
        await cluster.start_node(0)
        with suppress(errors.HourwheelError):
            await asked

        async def has_copies() -> bool:
            try:
                found = await admin.members()
            except errors.Unavailable:
                return False
            are_in_sync = [one.is_in_sync for one in found.members]
            return are_in_sync == [True] * 3 and not found.is_changing

        await until_told(has_copies)

        async def is_raised() -> bool:
            return await min_in_sync(first) == 2

        await until_told(is_raised)


async def test_node_alone_grows_into_three_and_is_not_needed_any_more(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 3, values=SMALL)
    files = [one.config_file for one in cluster.nodes]
    pending = [b"%d" % number for number in range(COUNT)]
    alone = rewrite(files[0])
    async with alone:
        async with AsyncProducer(alone.address) as producer:
            sent = await producer.publish_many(
                TOPIC, [Message(one, delay_ms=HOUR_MS) for one in pending]
            )
            await producer.publish_many(TOPIC, [Message(b"before")])
        await add_alice(alone.address)
        code, said = await promote(files[0])
        assert code == 1, "it runs"
    code, said = await promote(alone.config_file)
    assert (code, "no cluster.nodes" in said) == (1, True), said
    code, said = await promote(files[0])
    assert (code, "cluster.id = '" in said) == (1, True), said
    cluster_id = said.split("'")[1]

    first = rewrite(files[0], id=cluster_id)
    others = [rewrite(one, id=cluster_id, join=True) for one in files[1:]]
    with pytest.raises(errors.ForeignDirectory, match="members grow"):
        await Node(first.config).start()
    assert not (first.config.node.data_directory / CONTROL).exists()
    code, said = await promote(files[0])
    assert (code, "with 1 users and 1 grants" in said) == (0, True), said
    code, said = await promote(files[0])
    assert (code, "already" in said) == (0, True), said

    cluster = LocalCluster(tmp_path, 3)
    async with cluster:
        async with AsyncProducer(first.address) as producer:
            await producer.publish_many(TOPIC, [Message(b"one copy")])
        await check_alice(first.address)
        await grow(cluster, cluster_id)
        await cluster.kill_node(0)
        await cluster.wait_for_master(in_sync=2)
        rest = ",".join(one.address for one in others)
        for one in others:
            await check_alice(one.address)
        async with AsyncProducer(rest) as producer:
            moved = await producer.reschedule_many(sent, delay_ms=0)
            assert {one.outcome for one in moved} == {RescheduleOutcome.RESCHEDULED}
            await producer.publish_many(TOPIC, [Message(b"after")])
        got = await receive_all(rest, COUNT + 3)
        assert sorted(got) == sorted([*pending, b"before", b"one copy", b"after"])
    assert errors_of(run_audit(*(one.config.node.data_directory for one in others))) == []
