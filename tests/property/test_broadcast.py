"""Members of a broadcast that come and go, held against a list of messages and a place in it.

Each gets all that was released since it joined, once; whoever has a name goes on where it was; and
who was away for as long as it says is forgotten, nobody else.
"""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.formats.member_group import member_group_name, membership_of
from hourwheel.limits import MEMBER_IDLE_MS_MIN
from node.contracts.broadcast import Joining
from node.contracts.broker import Delivery, ReceiveParams
from storage.views.catalog_items import START_NOW_MS
from tests.support.engine_world import within
from tests.support.owned_world import OwnedWorld
from tests.support.unsynced import unsynced

LOOK_MS: Final = 1_000
IDLE_MS: Final = {"a": MEMBER_IDLE_MS_MIN, "b": MEMBER_IDLE_MS_MIN, "c": 2 * MEMBER_IDLE_MS_MIN}
Step = tuple[str, Any]
member = st.sampled_from(sorted(IDLE_MS))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 3)),
        st.tuples(st.just("join"), member),
        st.tuples(st.just("join"), member),
        st.tuples(st.just("take"), member),
        st.tuples(st.just("give_back"), member),
        st.tuples(st.just("join_again"), member),
        st.tuples(st.just("leave"), member),
        st.tuples(st.just("advance"), st.integers(1, 12)),
        st.tuples(st.just("sleep"), st.none()),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=25,
)


@dataclass
class Known:
    """A member as it should be."""

    token: int
    place: int
    """Of the first message that it has not got."""
    used_ms: int


class Life:
    """One node, and what its members should get."""

    def __init__(self, world: OwnedWorld) -> None:
        self.world = world
        self.released: list[int] = []
        """Due times, ascending."""
        self.known: dict[str, Known] = {}
        self.counted_from_ms = world.now_ms
        self.tokens = 0
        self.forgotten = 0

    def use(self, name: str) -> Known:
        self.known[name].used_ms = self.world.now_ms
        return self.known[name]

    async def publish(self, count: int) -> None:
        for _ in range(count):
            self.released.append(self.world.now_ms)
            await self.world.publish(self.world.now_ms)
            self.world.advance(1)

    async def join(self, name: str) -> None:
        """A start of the member: the first one, or one after a crash."""
        self.tokens += 1
        is_new = await self._join(name, self.tokens)
        assert is_new == (name not in self.known)
        place = len(self.released) if is_new else self.known[name].place
        self.known[name] = Known(self.tokens, place, self.world.now_ms)

    async def join_again(self, name: str) -> None:
        """The answer was lost."""
        if name in self.known:
            assert not await self._join(name, self.use(name).token)

    async def _join(self, name: str, token: int) -> bool:
        joining = Joining(group_of(name), "orders", token, START_NOW_MS, IDLE_MS[name], None)
        return await within(self.world.engine.join_broadcast(joining))

    async def take(self, name: str) -> None:
        """All that there is for it, acknowledged."""
        wanted = self.released[self.known[name].place :] if name in self.known else []
        got: list[int] = []
        while delivery := await self.poll(name, 60_000 if len(got) < len(wanted) else 0):
            got += delivery.due_ms.tolist()
            await self.world.ack(self.world.select(delivery), group=group_of(name))
        assert sorted(got) == wanted, name
        if name in self.known:
            self.use(name).place = len(self.released)

    async def give_back(self, name: str) -> None:
        """It gets some, and crashes: another one of its name gets them again."""
        delivery = await self.poll(name, 0)
        if delivery is not None:
            selection = self.world.select(delivery)
            await self.world.nack(selection, group=group_of(name), delay_ms=0)
            await self.join(name)

    async def poll(self, name: str, wait_ms: int) -> Delivery | None:
        """With the token of its last start; that of the start before is refused."""
        known = self.known.get(name)
        if known is None:
            try:
                await self._poll(name, 1, 0)
            except errors.UnknownGroup:
                return None
            raise AssertionError(f"{name} was forgotten")
        try:
            await self._poll(name, known.token + 1_000, 0)
            raise AssertionError("another start has the name")
        except errors.MemberReplaced:
            pass
        self.use(name)
        return await self._poll(name, known.token, wait_ms)

    async def _poll(self, name: str, token: int, wait_ms: int) -> Delivery | None:
        params = ReceiveParams(group_of(name), "orders", 2, 1 << 20, wait_ms, member_token=token)
        return await within(self.world.engine.receive(params))

    async def leave(self, name: str) -> None:
        if name in self.known:
            token = self.known.pop(name).token
            await within(self.world.engine.leave_broadcast(group_of(name), token))

    async def advance(self, seconds: int) -> None:
        """Housekeeping looks each second."""
        for _ in range(seconds):
            self.world.advance(LOOK_MS)
            await self.look()

    async def sleep(self, _: None) -> None:
        """The machine was suspended: nobody could call."""
        self.world.advance(10 * max(IDLE_MS.values()))
        self.counted_from_ms = self.world.now_ms
        await self.look()

    async def restart(self, _: None) -> None:
        await self.world.restart()
        self.counted_from_ms = self.world.now_ms

    async def look(self) -> None:
        await self.world.look_for_unused(3)
        now_ms = self.world.now_ms
        for name, one in list(self.known.items()):
            if now_ms - max(one.used_ms, self.counted_from_ms) >= IDLE_MS[name]:
                del self.known[name]
                self.forgotten += 1

    def check(self) -> None:
        there = {membership_of(one.name).member for one in self.world.groups()}
        assert there == self.known.keys()


def group_of(name: str) -> str:
    return member_group_name("prices", name)


async def play(root: Path, steps: list[Step]) -> int:
    async with OwnedWorld(root) as world:
        life = Life(world)
        await life.publish(1)
        for kind, value in steps:
            await getattr(life, kind)(value)
            life.check()
        for name in IDLE_MS:
            await life.take(name)
        await world.settled()
        world.check()
        return life.forgotten


@settings(max_examples=20, deadline=None)
@given(steps=STEPS)
@example([("join", "a"), ("publish", 3), ("give_back", "a"), ("restart", None), ("take", "a")])
@example([("join", "c"), ("sleep", None), ("publish", 2), ("leave", "c"), ("join", "c")])
def test_members_get_all_since_they_joined_when_others_come_and_go(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as root, unsynced():
        asyncio.run(play(Path(root), steps))


def test_model_forgets_members() -> None:
    steps: list[Step] = [("join", "a"), ("join", "c"), ("advance", 12), ("publish", 1)]
    with tempfile.TemporaryDirectory() as root, unsynced():
        assert asyncio.run(play(Path(root), steps)) == 1
