"""A user with a grant, who is to be there again after whatever became of the control state."""

import asyncio
from typing import Final

import pytest

from hourwheel import AsyncAdmin, errors
from tests.support.eventually import before_the_next_look

ALICE: Final = ("alice", "of alice")
_NOT_YET: Final = (errors.Unavailable, errors.FailedPrecondition)
"""The cluster does not follow the rules yet that know of users, or this node is not registered."""


async def add_alice(servers: str) -> None:
    """A user with a grant, which counts where access control is on, and is kept where it is off."""
    async with AsyncAdmin(servers) as admin, asyncio.timeout(60):
        while True:
            try:
                await admin.put_user(*ALICE)
                break
            except _NOT_YET:
                await before_the_next_look()
        await admin.grant("alice", ["publish"], "topic", "ord*")


async def check_alice(servers: str) -> None:
    """She can log in by her secret, nobody by another, and she has her grant."""
    async with AsyncAdmin(servers, user=("alice", "of mallory")) as mallory:
        with pytest.raises(errors.Unauthenticated):
            await mallory.grants()
    async with AsyncAdmin(servers, user=ALICE) as alice:
        assert [one.principal for one in await alice.grants()] == ["alice"]
