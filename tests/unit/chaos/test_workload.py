"""Load is settled when nothing is left, however a message moves while it is asked for."""

import asyncio
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

from chaos.actors.clients import GROUPS
from chaos.workload import Workload
from hourwheel.client.cluster_status import Role
from hourwheel.clock import SystemClock

READER: Final = next(iter(GROUPS))
ELSEWHERE: Final = 10
"""Moves that are tried at each question: two rounds of questions."""


class HandMovedAdmin:
    """A shard with one message, which moves right after a question where the script says so.

    At rest in the end: a script that is over moves the message on until it is acknowledged.
    """

    def __init__(self, script: Iterator[bool], *, place: str, roles: Iterator[Role]) -> None:
        self._script, self._roles = script, roles
        self.place = place
        self._offset = 100
        self._due_ms = int(SystemClock().wall_ms()) + 1

    def _pass(self) -> None:
        moves = next(self._script, None)
        if moves or (moves is None and self.place != "nowhere"):
            back = "wheel" if moves else "nowhere"  # given back, or acknowledged
            self.place = "queue" if self.place == "wheel" else back
            self._offset += 8

    async def get_group(self, name: str) -> Any:
        count = int(self.place == "queue" and name == READER)
        self._pass()
        return SimpleNamespace(lags=(SimpleNamespace(unresolved_count=count),))

    async def status(self) -> Any:
        role = next(self._roles, Role.MASTER)
        shard = SimpleNamespace(
            epoch=3,
            role=role,
            may_act=role is Role.MASTER,
            # A follower is behind, and knows of no message.
            applied_offset=self._offset if role is Role.MASTER else 0,
            log_end_offset=self._offset if role is Role.MASTER else 0,
            next_due_ms=self._due_ms * (self.place == "wheel" and role is Role.MASTER),
        )
        self._pass()
        return SimpleNamespace(shards=(shard,))


class Impatient(Workload):
    async def pass_ms(self, duration_ms: float) -> None:
        await asyncio.sleep(0)


def workload(admin: Any) -> Workload:
    load = Impatient("127.0.0.1:1", 0)
    load.admin = admin
    return load


async def test_settle_when_a_message_moves_between_any_two_questions() -> None:
    for script in itertools.product((False, True), repeat=ELSEWHERE):
        for place in ("wheel", "queue"):
            admin = HandMovedAdmin(iter(script), place=place, roles=iter(()))
            await workload(admin).settle()
            assert admin.place == "nowhere", (place, script)


async def test_settle_when_followers_that_are_behind_say_how_it_stands() -> None:
    for roles in itertools.product((Role.MASTER, Role.FOLLOWER), repeat=4):
        still = itertools.chain([False] * 5, [True])
        admin = HandMovedAdmin(still, place="wheel", roles=iter(roles))
        await workload(admin).settle()
        assert admin.place == "nowhere", roles
