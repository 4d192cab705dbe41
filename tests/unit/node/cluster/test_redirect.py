"""What a node says that is not the master."""

from dataclasses import replace
from pathlib import Path

import pytest

from replication.control_state.state import ControlState
from tests.support.member_world import MemberWorld


async def test_another_node_is_named_with_its_address_and_epoch(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        await world.elect("n2")
        params = world["n1"].member.redirect().params
        assert params == {"master": "n2", "master_address": "n2.example:7400", "epoch": "1"}


async def test_address_is_empty_when_the_master_has_not_registered(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        nodes = {name: one for name, one in world.control.state.nodes.items() if name != "n2"}
        world.control.state = replace(world.control.state, nodes=nodes)
        await world.elect("n2")
        error = world["n1"].member.redirect()
        assert (error.master_address, error.epoch) == ("", 1)


@pytest.mark.parametrize("state", ["unknown", "empty", "no master", "itself"])
async def test_nobody_is_named_when_nobody_else_is_master(tmp_path: Path, state: str) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = world["n1"]
        if state == "empty":
            n1.member.on_state(ControlState())
        elif state == "no master":
            n1.member.on_state(world.control.state)
        elif state == "itself":
            await world.elect("n1")
        error = n1.member.redirect()
        assert error.params == {}
        assert "no node is the master" in error.message
