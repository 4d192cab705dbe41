"""A small real log of groups that filter: by tags, by SQL, at the client, changed in between.

    directory = await make_filtered_log(tmp_path / "node-1", seed=7)

As `tests.support.log_maker`, which knows no filters. Topic `orders` has the default genes,
`parcels` Bloom genes with a property, `notes` hash-sets. Groups change what they want while
messages of before are still to be looked at, and leases are still out.
"""

import random
from pathlib import Path
from typing import Final

from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.formats.tag_gene import GeneKind, GeneSpec, gene_of
from hourwheel.types import NodeId
from node.contracts.broker import GroupSettings, NewTopic
from node.shard.dispatcher import DispatchConfig
from node.shard.node_meta import open_node_meta
from node.shard.recovery import ShardConfig
from storage.files.disk import RealDisk
from storage.log.commit_log import LogConfig
from tests.support.engine_world import LEAD_MS, EngineWorld, within
from tests.support.eventually import until
from tests.support.log_maker import CLUSTER_ID
from timewheel.wheel import WheelConfig

SPECS: Final = {
    "orders": GeneSpec(),
    "parcels": GeneSpec(GeneKind.BLOOM, 4, ("region",)),
    "notes": GeneSpec(GeneKind.HASH_SET),
}
TAGS: Final = ("paid", "open", "lost", "eu", "us")
_WANTS: Final = {
    ("billing", "orders"): (
        FilterExpression.tags("paid || lost"),
        FilterExpression.tags("open && !paid"),
    ),
    ("archive", "parcels"): (
        FilterExpression.sql("region = 'eu' AND amount > 50"),
        FilterExpression.sql("amount BETWEEN 10 AND 90 OR region IS NULL"),
    ),
    ("atlas", "notes"): (
        FilterExpression.tags("eu"),
        FilterExpression.tags("eu"),
    ),
    ("everything", "orders"): (FilterExpression.everything(), FilterExpression.everything()),
    ("seen", "orders"): (
        FilterExpression.tags("us", check_at_client=True),
        FilterExpression.tags("us", check_at_client=True),
    ),
}


async def make_filtered_log(
    directory: Path, *, seed: int = 1, rounds: int = 3, messages: int = 40
) -> Path:
    """Let a node live for some rounds. Each publishes `messages` to each of the three topics."""
    RealDisk(directory.parent).make_dir(directory.name)
    open_node_meta(RealDisk(directory), NodeId("node-1"), CLUSTER_ID)
    shard = ShardConfig(
        log=LogConfig(segment_bytes=32_768, index_interval_bytes=4_096),
        wheel=WheelConfig(memtable_units_max=64),
        dispatch=DispatchConfig(lead_ms_min=LEAD_MS, lead_ms_max=LEAD_MS),
    )
    async with EngineWorld(directory, shard=shard) as world:
        life = _Life(world, random.Random(seed), messages)
        await life.begin()
        for number in range(rounds):
            await life.round(number)
    return directory


class _Life:
    def __init__(self, world: EngineWorld, rng: random.Random, messages: int) -> None:
        self._world, self._rng, self._messages = world, rng, messages

    async def begin(self) -> None:
        world = self._world
        for number, (topic, spec) in enumerate(SPECS.items(), 1):
            await within(world.engine.create_topic(topic, number, NewTopic(spec)))
        settings = GroupSettings(attempts_max=3, retry_delay_ms=5_000)
        for (group, topic), (wanted, _) in _WANTS.items():
            await within(world.engine.put_group(group, settings))
            await within(world.engine.put_subscription(group, topic, wanted))

    async def round(self, number: int) -> None:
        world = self._world
        for topic, spec in SPECS.items():
            await self._publish(topic, spec)
        for step in range(3):
            world.advance(10_000)
            await until(lambda: not 0 < world.engine.status().next_due_ms <= world.now_ms)
            for (group, topic), wanted in _WANTS.items():
                await self._consume(group, topic, rest=number == 2)
                if step == 1 and number == 1:
                    await within(world.engine.put_subscription(group, topic, wanted[1]))
        if number == 0:
            await world.restart()

    async def _publish(self, topic: str, spec: GeneSpec) -> None:
        rng, world = self._rng, self._world
        metas, due_ms = [], []
        for _ in range(self._messages):
            properties = {
                "region": rng.choice(("eu", "us", "")),
                "amount": str(rng.randrange(100)),
            }
            kept = tuple((name, value) for name, value in properties.items() if value)
            tags = tuple(sorted(rng.sample(TAGS, rng.randrange(1 if topic == "notes" else 3))))
            metas.append(MessageMeta(tags=tags, properties=kept, keys=(f"k-{rng.random()}",)))
            due_ms.append(world.now_ms + rng.choice((0, 1_000, 15_000, 25_000, 90_000, 3_700_000)))
        encoded = [encode(one) for one in metas]
        raw = build_publish(
            due_ms,
            [rng.randbytes(rng.randrange(30)) for _ in metas],
            metas=[one.raw for one in encoded],
            tag_genes=[gene_of(spec, one.tags, one.properties) for one in metas],
            key_hashes=[one.key_hash for one in encoded],
            gene_spec=spec.number,
        )
        await within(world.engine.publish_batch(topic, RecordBatch(raw)))

    async def _consume(self, group: str, topic: str, *, rest: bool) -> None:
        """Some are acknowledged one by one, some given back, some leases run out."""
        world, rng = self._world, self._rng
        for _ in range(30):
            found = await world.receive(group=group, topic=topic, count=8, invisible_ms=15_000)
            if found is None:
                break
            every = range(len(found.units))
            if rng.random() < 0.4:
                await world.ack(world.select(found), group=group)
                continue
            acks = [one for one in every if rng.random() < 0.6]
            if acks:
                await world.ack(*(world.select(found, one, 1) for one in acks), group=group)
            nacks = [one for one in every if one not in acks and (rest or rng.random() < 0.5)]
            if nacks:
                chosen = [world.select(found, one, 1) for one in nacks]
                await world.nack(*chosen, delay_ms=rng.choice((None, 1_000)), group=group)
