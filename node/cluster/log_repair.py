"""What a member of a cluster does when it finds files damaged that it does not need now. A shell.

    damaged     the batches are fetched from other replicas, and the segment is rewritten: it leads
                or follows meanwhile as before
    given up    no replica has them, or too much is damaged, or a view for a snapshot is: it must
                not be elected, and transfers mastership if it is the master
    spared      it follows a master, and enough others are in sync: it starts again with an empty
                shard in the place of this one, and is filled by the master (decision 0013)

Until then it goes on: what it has beyond the damage may be needed. With two nodes of two in sync it
never is spared; then an operator has to decide: the node's log and metrics say so.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from hourwheel import errors
from hourwheel.types import NO_NODE, Offset
from node.cluster.member import ClusterMember
from node.telemetry import logs
from node.telemetry.failure import Failure
from replication.rules.follower import FollowerPhase

_LOOK_S: Final = 1.0
_ATTEMPTS: Final = 6
"""Others may just be starting: half a minute, with twice as long between two attempts each time."""
_log = logs.get(__name__)


class LogRepair:
    """See the top of this file. On the event loop's thread."""

    def __init__(
        self,
        member: ClusterMember,
        failure: Failure,
        *,
        min_in_sync: int,
        mend: Callable[[Offset], Awaitable[bool]],
        renew: Callable[[errors.DataLoss], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Nothing is damaged yet.

        Args:
            member: this node.
            failure: takes bugs.
            min_in_sync: so many others must be in sync before this node's log may go, unless the
                control plane says how many.
            mend: repairs the segment of an offset; returns whether it is sound.
            renew: stops the node and starts it again with an empty shard.
            sleep: waits for so many seconds; for tests.
        """
        self._member, self._failure = member, failure
        self._min_in_sync, self._renew, self._sleep = min_in_sync, renew, sleep
        self._mend = mend
        self.on_mended: Callable[[errors.DataLoss], None] = lambda _: None
        """Called with what is repaired."""
        self._found: deque[errors.DataLoss] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_given_up = False

    def on_damage(self, error: errors.DataLoss) -> None:
        """The log is damaged there: `error` names the offset. Each place is worked on once."""
        offset = error.params.get("offset")
        if offset is None or offset not in (one.params.get("offset") for one in self._found):
            self._found.append(error)
            self._begin()

    def give_up(self, error: errors.DataLoss) -> None:
        """Much of the log, or a view, is damaged, and cannot be repaired piece by piece.

        Another node should lead, and this one start with an empty shard.
        """
        if self._is_given_up:
            return
        self._found.appendleft(error)
        self._is_given_up = True
        self._begin()

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Repair nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        with self._failure.catching():
            while self._found:
                error = self._found[0]
                if not await self._is_mended(error):
                    await self._start_anew(error)
                    return
                self._found.popleft()
                self.on_mended(error)
        self._task = None

    async def _is_mended(self, error: errors.DataLoss) -> bool:
        wait_s = _LOOK_S
        for _ in range(_ATTEMPTS):
            if self._is_given_up or "offset" not in error.params:
                return False
            if await self._mend(Offset(int(error.params["offset"]))):
                return True
            await self._sleep(wait_s)
            wait_s *= 2
        return False

    async def _start_anew(self, error: errors.DataLoss) -> None:
        self._member.is_damaged = True
        while not self._is_spared():
            if self._member.replica.mastership is not None:
                self._member.transfer_mastership(NO_NODE)
            await self._sleep(_LOOK_S)
        _log.warning("log_refetch_started", reason=error.message)
        self._renew(error)

    def _is_spared(self) -> bool:
        replica = self._member.replica
        others = replica.assignment.isr - {replica.identity.node_id}
        needed = replica.assignment.min_in_sync or self._min_in_sync
        return (
            replica.mastership is None
            and not replica.is_elected
            and replica.follower.phase is FollowerPhase.FOLLOWING
            and len(others) >= needed
        )
