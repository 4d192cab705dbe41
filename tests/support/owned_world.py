"""An engine whose topics and groups come from a control state in memory."""

from pathlib import Path
from typing import Any

from hourwheel.internal.v1 import control_pb2 as wire
from node.broker.settings import EngineConfig
from node.catalog.changes import DefaultsConfig
from node.contracts.broker import CatalogUpdate, GroupSettings
from storage.views.catalog import Catalog
from tests.support.catalog_control import ControlInMemory
from tests.support.engine_world import EngineWorld, let_others_run, within

DEFAULTS = DefaultsConfig(topic_idle_ms=1, group_idle_ms=1)
TO_BE_CHANGED = CatalogUpdate(description="changed")


class OwnedWorld(EngineWorld):
    """One whose topics and groups come from a control state; `is_old`: when a test says so."""

    owned: ControlInMemory

    def __init__(
        self, root: Path, *, is_old: bool = False, defaults: DefaultsConfig = DEFAULTS
    ) -> None:
        super().__init__(root, EngineConfig(defaults=defaults))
        self.owned = ControlInMemory()
        self.control = None if is_old else self.owned

    @property
    def catalog(self) -> Catalog:
        return self.engine.shard.views.catalog

    @property
    def log_topics(self) -> dict[str, int]:
        return {one.name: one.topic_id for one in self.catalog.topics() if not one.internal}

    @property
    def log_groups(self) -> dict[str, int]:
        return {one.name: one.group_id for one in self.catalog.groups()}

    async def settled(self) -> None:
        """All that is on its way is applied."""
        await let_others_run()
        await within(self.engine.group_commit.drain())
        await let_others_run()

    def check(self) -> None:
        """The log has just what the control state has."""
        self.catalog.check()
        assert (self.log_topics, self.log_groups) == (self.owned.topics, self.owned.groups)
        versions = {one.name: one.version for one in self.catalog.topics() if not one.internal}
        assert versions == {one.name: one.version for one in self.owned.applied.topics.values()}

    def decide(self, **command: Any) -> wire.ControlResult:
        """A command of somebody else."""
        result = self.owned.apply(wire.ControlCommand(**command))
        assert result.outcome == wire.CONTROL_OUTCOME_OK, result
        return result


async def aged(world: OwnedWorld) -> tuple[dict[str, int], dict[str, int]]:
    """What a directory has that knew no control state: some numbers are used and gone."""
    for name in ("a", "orders", "bills"):
        await world.publish(world.now_ms, topic=name)
    assert await world.receive() is not None
    await within(world.engine.put_group("mail", GroupSettings(attempts_max=3)))
    await within(world.engine.delete_topic("a"))
    await within(world.engine.update_topic("bills", TO_BE_CHANGED))
    return world.log_topics, world.log_groups
