"""Rounds in which the voters change under load, and those in which permissions do.

    replace   a node is lost for good, another with a new id takes its place, and the lost one
              comes back: it ends by itself
    grow      three become five, lose their master, and become three again

While two administrators ask for a change at once, some node is killed and started again: one that
they ask, Raft's leader, the new one, or any other.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from chaos.cluster import Cluster, NotWell
from chaos.faults import killed
from chaos.node_process import NodeProcess
from chaos.principals import ADMIN, GuestGrant
from chaos.stage import Stage
from hourwheel import AsyncAdmin, errors
from hourwheel.client.members import Members

FORMER_EXIT_CODE: Final = 78
"""Of a node that hears that it is no member any more."""
_LOOK_S: Final = 0.1
_KILL_WITHIN_MS: Final = 600
_DENIED_CALLS: Final = 3


async def replace(stage: Stage) -> None:
    """A node is lost for good under load, and another one takes its place."""
    cluster = stage.cluster
    master = await stage.master()
    lost = stage.chooser.choice(list(cluster.nodes.values()))
    kept = [node for node in cluster.nodes.values() if node is not lost]
    if lost is master:
        fault = _lost(lost)
        await stage.ends_mastership("lost for good, master", [lost], fault, whole=False)
    else:
        begun_ms = stage.clock.wall_ms()
        await lost.kill()
        await stage.some_load()
        stage.note("lost for good, follower", [lost], begun_ms)
    new = await cluster.join()
    await _change(stage, kept, add=[new], remove=[lost])
    cluster.set_members(node.node_id for node in (*kept, new))
    await stage.some_load()
    await _settled(stage)
    await lost.spawn()
    await _ends(cluster, [lost])


async def grow(stage: Stage) -> None:
    """Three become five and lose their master; two followers leave."""
    cluster = stage.cluster
    kept = list(cluster.nodes.values())
    added = [await cluster.join(), await cluster.join()]
    await _change(stage, kept, add=added, remove=[])
    cluster.set_members(node.node_id for node in (*kept, *added))
    await stage.some_load()
    await _settled(stage)
    master = await stage.master()
    await stage.ends_mastership("kill -9, whole, of five", [master], killed([master]))
    await _settled(stage)
    leaving = stage.chooser.sample(cluster.followers(await stage.master()), 2)
    kept = [node for node in cluster.nodes.values() if node not in leaving]
    await _change(stage, kept, add=[], remove=leaving)
    cluster.set_members(node.node_id for node in kept)
    await _ends(cluster, leaving)
    await stage.some_load()
    await _settled(stage)


async def revoke(stage: Stage) -> None:
    """A principal's grant is taken while it works and the master dies, and given again."""
    grant, calls = stage.load.guest_grant, stage.load.history.guest_calls
    if grant is None:
        raise TypeError
    await grant.give()
    seen = len(calls)
    await stage.load.wait_for(lambda: any(call.is_ok for call in calls[seen:]))
    node = await stage.master()
    if stage.chooser.random() < 0.5:
        await grant.take()
        await _refused(stage)
        await stage.ends_mastership("kill -9, whole, revoked", [node], killed([node]))
    else:
        taking = asyncio.create_task(_take_in_a_moment(stage, grant))
        await stage.ends_mastership("kill -9, whole, at a revocation", [node], killed([node]))
        await taking
    await _refused(stage)
    await grant.give()
    seen = len(calls)
    await stage.load.wait_for(lambda: any(call.is_ok for call in calls[seen:]))
    await grant.take()


async def _take_in_a_moment(stage: Stage, grant: GuestGrant) -> None:
    await stage.a_moment()
    await grant.take()


async def _refused(stage: Stage) -> None:
    """Wait until the guest has heard a few times that it may not."""
    calls = stage.load.history.guest_calls
    taken = stage.load.history.grant_changes[-1]
    taken_ms = errors.required(taken.answered_ms, "somebody has said that it is gone")

    def is_refused() -> bool:
        late = [call for call in calls if call.requested_ms > taken_ms]
        return sum(not call.is_ok for call in late) >= _DENIED_CALLS

    await stage.load.wait_for(is_refused)
    await stage.some_load()


@asynccontextmanager
async def _lost(node: NodeProcess) -> AsyncIterator[None]:
    """It is not healed."""
    await node.kill()
    yield


async def _change(
    stage: Stage, kept: Sequence[NodeProcess], add: Sequence[NodeProcess], remove: list[NodeProcess]
) -> None:
    """Two administrators ask for it through two members, and some node dies meanwhile."""
    cluster = stage.cluster
    control = {node.node_id: cluster.network.listens(node.node_id).control for node in add}
    leaving = [node.node_id for node in remove]
    generation = (await _members(cluster)).generation
    requested = stage.chooser.sample(kept, 2)
    victim = stage.chooser.choice([None, requested[0], await _leader(cluster), *add, *kept])
    begun_ms = stage.clock.wall_ms()

    async def ask(node: NodeProcess) -> int:
        """How often it got the answer that this was done."""
        while (await _members(cluster)).generation == generation:
            try:
                async with AsyncAdmin(node.api, **cluster.options(ADMIN)) as admin:
                    await admin.change_members(control, leaving, expected_generation=generation)
            except errors.HourwheelError:
                await asyncio.sleep(_LOOK_S)
            else:
                return 1
        return 0

    asking = [asyncio.create_task(ask(node)) for node in requested]
    try:
        if victim is not None:
            await stage.pass_ms(stage.chooser.random() * _KILL_WITHIN_MS)
            async with killed([victim]):
                pass
            stage.note("kill -9, whole, while members change", [victim], begun_ms)
        async with asyncio.timeout(cluster.hang_s):
            done_count = sum(await asyncio.gather(*asking))
    finally:
        for one in asking:  # no requests once the round is over
            one.cancel()
    if done_count > 1:
        raise NotWell("both administrators got the answer that they changed the members")
    stage.note(f"members change: {sorted(control)} for {leaving}", kept, begun_ms)


async def _leader(cluster: Cluster) -> NodeProcess | None:
    return cluster.nodes.get(await cluster.find_raft_leader())


async def _members(cluster: Cluster) -> Members:
    """As any node says."""
    async with (
        asyncio.timeout(cluster.hang_s),
        AsyncAdmin(cluster.servers, **cluster.options(ADMIN)) as admin,
    ):
        while True:
            try:
                return await admin.members()
            except errors.HourwheelError:
                await asyncio.sleep(_LOOK_S)


async def _settled(stage: Stage) -> None:
    """Wait until all members have a copy that is in sync, and no other node has."""
    try:
        async with asyncio.timeout(stage.cluster.hang_s):
            while not _is_settled(await _members(stage.cluster), stage.cluster.nodes):
                await stage.cluster.revive()
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        found = await _members(stage.cluster)
        raise NotWell(f"the copies do not follow the members: {found}") from None


def _is_settled(found: Members, names: Iterable[str]) -> bool:
    is_whole = all(one.has_replica and one.is_in_sync for one in found.members)
    named = {one.node_id for one in found.members} == set(names)
    return is_whole and named and not found.is_changing


async def _ends(cluster: Cluster, nodes: Iterable[NodeProcess]) -> None:
    """Wait until former members end by themselves. Raises NotWell."""
    for node in nodes:
        try:
            async with asyncio.timeout(cluster.hang_s):
                code = await node.ended()
        except TimeoutError:
            raise NotWell(f"{node.node_id} is no member any more, and goes on") from None
        if code != FORMER_EXIT_CODE:
            raise NotWell(f"{node.node_id} is no member any more, and ended with {code}")
