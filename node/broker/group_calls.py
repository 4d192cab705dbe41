"""The engine's calls about where groups go on, and about members of broadcasts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from hourwheel.types import Position
from node.broker.master_service import MasterService
from node.contracts.broadcast import Joining
from node.contracts.group_positions import ResetInfo, ResetTarget, SkippedInfo, Unblocking


class GroupCalls(ABC):
    """A part of the engine."""

    @property
    @abstractmethod
    def _master(self) -> MasterService:
        """Who answers now. Raises ShuttingDown, NotMaster."""

    async def skip(
        self, group: str, topic: str, before_ms: int, positions: Sequence[Position]
    ) -> SkippedInfo:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.skipper.skip(group, topic, before_ms, positions))

    async def reset_group(
        self, group: str, topic: str, target: ResetTarget, *, count_only: bool
    ) -> ResetInfo:
        """See EnginePort."""
        master = self._master
        resetting = master.resetter.reset(group, topic, target, count_only=count_only)
        return await master.answer(resetting)

    async def join_broadcast(self, joining: Joining) -> bool:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.expiry.members.join(joining))

    async def leave_broadcast(self, group: str, token: int) -> None:
        """See EnginePort."""
        master = self._master
        await master.answer(master.expiry.members.leave(group, token))

    async def unblock(self, group: str, topic: str, unblocking: Unblocking) -> int:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.skipper.unblock(group, topic, unblocking))
