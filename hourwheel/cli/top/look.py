"""Asks the nodes how they are: those that answer, as long as any does, with or without a master."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from hourwheel.cli.access import current_access
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.catalog import GroupLag
from hourwheel.client.cluster_status import ClusterStatus, find_master
from hourwheel.client.node_probe import NodeProbe
from hourwheel.client.wheel import WheelDescription
from hourwheel.clock import SystemClock
from hourwheel.errors import HourwheelError, NotFound, Timeout
from hourwheel.transport.channel import Channel
from hourwheel.transport.endpoints import parse_servers

NODE_MS: Final = 1_000.0
"""How long a node may take to say how it is."""
MASTER_MS: Final = 3_000.0
"""How long the master may take for wheel and groups."""
GROUPS_PER_LOOK: Final = 64
"""Each group is a call: of thousands of groups, some are asked about each time."""
GROUPS_AT_A_TIME: Final = 8
LIST_EVERY_MS: Final = 30_000.0
"""How often the list of all groups is fetched."""
DUE_WITHIN_S: Final = (60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)
_SECOND_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class GroupsLook:
    """What is known of the consumer groups."""

    group_count: int
    """All there are."""
    lags: dict[str, tuple[GroupLag, ...]]
    """Of those that were asked about, now or before."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the nodes said when they were asked together."""

    at_ms: float
    """By this process's monotonic clock."""
    statuses: dict[str, ClusterStatus]
    """Of each node that answered, by its id."""
    silent: dict[str, HourwheelError]
    """Of the addresses that did not: why."""
    wheel: WheelDescription | None = None
    groups: GroupsLook | None = None
    trouble: HourwheelError | None = None
    """Why the master, which there is, did not tell of wheel and groups."""


class Watch:
    """Looks at one cluster again and again. Belongs to one event loop."""

    def __init__(self, channel: Channel, servers: str) -> None:
        """`channel`: to the same `servers`, and closed by the caller."""
        self._admin = AsyncAdmin(channel)
        self._servers = parse_servers(servers)
        self._clock = SystemClock()
        self._probes: dict[str, NodeProbe] = {}
        self._node_at: dict[str, str] = {}
        """Address -> the node that answered there last."""
        self._known: dict[str, str] = {}
        """Node -> the address at which the others say that it is."""
        self._groups = _Groups(self._admin)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await asyncio.gather(*(probe.close() for probe in self._probes.values()))

    async def look(self) -> Look:
        """Ask all nodes, then the master; takes a few seconds at most, and never fails."""
        statuses: dict[str, ClusterStatus] = {}
        silent: dict[str, HourwheelError] = {}
        at_ms = self._clock.monotonic_ms()
        requested: set[str] = set()
        while addresses := [one for one in self._addresses() if one not in requested]:
            requested.update(addresses)
            answers = await asyncio.gather(*map(self._ask, addresses))
            for address, answer in zip(addresses, answers, strict=True):
                if isinstance(answer, HourwheelError):
                    silent[address] = answer
                else:
                    statuses[self._note(address, answer)] = answer
        master = find_master(statuses)
        if master is None:
            return Look(at_ms, statuses, silent)
        try:
            async with asyncio.timeout(MASTER_MS / 1_000):
                wheel = await self._admin.describe_wheel(_bounds_ms(statuses[master[0]]))
                groups = await self._groups.look(self._clock.monotonic_ms())
        except HourwheelError as error:
            return Look(at_ms, statuses, silent, trouble=error)
        except TimeoutError:
            late = Timeout(f"no answer within {MASTER_MS:.0f} ms")
            return Look(at_ms, statuses, silent, trouble=late)
        return Look(at_ms, statuses, silent, wheel, groups)

    def _note(self, address: str, status: ClusterStatus) -> str:
        """Learn from an answer where nodes are; gives the id of the one that answered."""
        node_id = status.answered_by or address
        self._node_at[address] = node_id
        self._known |= {one.node_id: one.address for one in status.nodes if one.address}
        return node_id

    def _addresses(self) -> list[str]:
        """Where to ask: each server that was given, and each node that is at none of them."""
        given = [*self._servers]
        reached = {self._node_at.get(address) for address in given}
        others = [address for node, address in self._known.items() if node not in reached]
        return list(dict.fromkeys([*given, *others]))

    async def _ask(self, address: str) -> ClusterStatus | HourwheelError:
        probe = self._probes.get(address)
        if probe is None:
            probe = self._probes[address] = NodeProbe(address, current_access())
        try:
            return await probe.status(NODE_MS)
        except HourwheelError as error:
            return error


class _Groups:
    """What is known of groups: the ones most behind are asked about each time, others in turn."""

    def __init__(self, admin: AsyncAdmin) -> None:
        self._admin = admin
        self._lags: dict[str, tuple[GroupLag, ...]] = {}
        self._turn: deque[str] = deque()
        self._listed_at_ms = float("-inf")

    async def look(self, now_ms: float) -> GroupsLook:
        """Ask about some groups. Raises HourwheelError where the master does not answer."""
        if now_ms - self._listed_at_ms >= LIST_EVERY_MS:
            names = [group.name for group in await self._admin.groups()]
            self._lags = {name: lags for name, lags in self._lags.items() if name in set(names)}
            self._turn = deque(names)
            self._listed_at_ms = now_ms
        chosen = self._choose()
        for first in range(0, len(chosen), GROUPS_AT_A_TIME):
            await asyncio.gather(*map(self._ask, chosen[first : first + GROUPS_AT_A_TIME]))
        return GroupsLook(len(self._turn), dict(self._lags))

    def _choose(self) -> Sequence[str]:
        """Half of them those most behind, the others in turn."""
        behind = sorted(self._lags, key=lambda name: -unresolved_count(self._lags[name]))
        chosen = dict.fromkeys(behind[: GROUPS_PER_LOOK // 2])
        for _ in range(len(self._turn)):
            if len(chosen) >= GROUPS_PER_LOOK:
                break
            chosen.setdefault(self._turn[0])
            self._turn.rotate(-1)
        return list(chosen)

    async def _ask(self, name: str) -> None:
        try:
            self._lags[name] = (await self._admin.get_group(name)).lags
        except NotFound:  # deleted meanwhile
            self._lags.pop(name, None)


def unresolved_count(lags: Sequence[GroupLag]) -> int:
    """What a group has still to do, in all topics."""
    return sum(one.unresolved_count for one in lags)


def _bounds_ms(status: ClusterStatus) -> list[int]:
    """Bounds of the ranges of due time, by the master's clock."""
    clock_ms = max(node.clock_ms for node in status.nodes)
    begin_ms = clock_ms - clock_ms % _SECOND_MS
    return [begin_ms, *(begin_ms + within_s * _SECOND_MS for within_s in DUE_WITHIN_S)]
