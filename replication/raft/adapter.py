"""Raft in a thread of its own, for an event loop: propose, see the state, know the leader.

The tick thread owns PySyncObj, its journal and the state machine; the loop sees immutable states
and statuses, handed over with `call_soon_threadsafe`. If the thread dies, for whatever reason, the
process has to end: half a Raft node is worse than none. If it stalls, elections may follow: stalls
are counted and logged.

A proposal has one of four ends, and a lost answer is never taken for "no":

    applied      the machine's answer
    refused      Unavailable: no leader, a full queue, ... It was not applied and never will be
    unknown      tried again with the same request id until the timeout; the machine answers twice
                 alike. Then Timeout: it may have been applied, or still be
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hourwheel import errors
from hourwheel.clock import Clock
from replication.control_state.commands import apply_command
from replication.control_state.state import ControlState, decode_state, encode_state
from replication.raft.pysyncobj_surface import FAIL_REASON
from replication.raft.raft_node import RaftNode, RaftStatus

STALL_MS: Final = 250.0
"""A tick that takes so much longer than it waits is worth an alarm: elections begin at twice that.
"""
_ATTEMPT_S: Final = 1.5
"""PySyncObj may lose a callback; then the same command is sent again."""
_FAREWELL_TICKS: Final = 10
_FAREWELL_TICK_S: Final = 0.02
"""How long a leader that is asked to stop tries to hand over."""
_PAUSE_S: Final = 0.05
"""Between attempts."""
_DEFINITE: Final[dict[int, str]] = {
    FAIL_REASON.QUEUE_FULL: "too many commands are waiting",
    FAIL_REASON.MISSING_LEADER: "the control plane has no leader",
    FAIL_REASON.DISCARDED: "another command took its place",
    FAIL_REASON.NOT_LEADER: "the control plane's leader has changed",
    FAIL_REASON.REQUEST_DENIED: "the disk of the control plane's leader is full",
}
"""Reasons for failing that say: not applied, and never will be."""

_ENDED: Final = -1
"""In place of a reason: this Raft is over, and the next generation's has the answer."""

_log = logging.getLogger(__name__)


class GenerationEnded(Exception):
    """The generation of voters is over; whether the command was applied, the next one knows."""


class ControlMachine:
    """The replicated state, for RaftNode. Changed by the tick thread, read by any."""

    def __init__(self) -> None:
        """Empty."""
        self.state = ControlState()
        self.must_store = False

    def apply(self, command: bytes) -> bytes:
        """Apply a command and answer it; raises nothing but MemoryError.

        Newer rules are stored in a snapshot at once: older software refuses that, where it would
        read the command in the journal, answer "refused", and come to another state.
        """
        rules = self.state.codec_version
        self.state, answer = apply_command(self.state, command)
        self.must_store |= self.state.codec_version != rules
        return answer

    def snapshot(self) -> bytes:
        """All of it."""
        return encode_state(self.state)

    def restore(self, raw: bytes) -> None:
        """Become what a snapshot says."""
        self.state = decode_state(raw)


@dataclass
class TickStats:
    """How the tick thread does."""

    stall_count: int = 0
    stall_ms_max: float = 0.0


class RaftAdapter:
    """See the top of this file. Methods on the loop.

    Attributes:
        status: as last seen.
        stats: of ticks.
        on_state, on_status: called on the loop with each new state or status.
        on_death: called on the loop when the thread has died by itself, with what killed it.
    """

    def __init__(
        self,
        node: RaftNode,
        machine: ControlMachine,
        clock: Clock,
        tick_s: float,
        *,
        on_state: Callable[[ControlState], None],
        on_status: Callable[[RaftStatus], None],
        on_death: Callable[[BaseException], None],
        attempt_s: float = _ATTEMPT_S,
    ) -> None:
        """Starts nothing. `attempt_s`: see `_ATTEMPT_S`."""
        self._attempt_s = attempt_s
        self.status = RaftStatus()
        self.stats = TickStats()
        self.on_state = on_state
        self.on_status = on_status
        self.on_death = on_death
        self._node = node
        self._machine = machine
        self._clock = clock
        self._tick_s = tick_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reported_state: ControlState | None = None
        self._reported_status = RaftStatus()
        self._is_stopping = threading.Event()
        self._answers: set[asyncio.Future[tuple[bytes | None, int]]] = set()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="raft", daemon=True)

    @property
    def state(self) -> ControlState:
        """The latest state that this node has applied."""
        return self._machine.state

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def end(self) -> None:
        """Answer no caller any more: those who wait, and come, get `GenerationEnded`."""
        self._is_over = True
        for answered in self._answers:
            if not answered.done():
                answered.set_result((None, _ENDED))

    async def stop(self) -> None:
        """End the thread and let go of the files."""
        self._is_stopping.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)
        elif self._loop is None:  # it was never started
            self._node.destroy()
            self._node.close_pipe()

    # --- the tick thread

    def _run(self) -> None:
        try:
            self._tick_for_ever()
            self._node.hand_over(_FAREWELL_TICKS, _FAREWELL_TICK_S)
            self._node.destroy()
            self._node.close_pipe()
        except BaseException as error:  # noqa: BLE001 - the thread ends; the loop must hear of it
            _log.exception("raft_thread_failed")
            self._tell(self.on_death, error)

    def _tick_for_ever(self) -> None:
        # A tick applies what the one before received, and then waits. Reported after the wait, a
        # new master would reach each follower's broker up to a whole tick late.
        self._node.before_wait = self._tell_news
        last_ms = self._clock.monotonic_ms()
        while not self._is_stopping.is_set():
            wait_s = self._node.find_wait_s(self._tick_s)
            self._node.doTick(wait_s)
            now_ms = self._clock.monotonic_ms()
            self._watch(now_ms - last_ms - wait_s * 1_000)
            last_ms = now_ms

    def _tell_news(self) -> None:
        """Tell the loop of a state or a status that it does not know."""
        if self._machine.state is not self._reported_state:
            self._reported_state = self._machine.state
            self._tell(self.on_state, self._reported_state)
        status = self._node.status()
        if status != self._reported_status:
            self._reported_status = status
            self._tell(self._set_status, status)

    def _watch(self, stalled_ms: float) -> None:
        """`stalled_ms`: how much longer than it was to wait a tick has taken."""
        if stalled_ms > STALL_MS:
            self.stats.stall_count += 1
            self.stats.stall_ms_max = max(self.stats.stall_ms_max, stalled_ms)
            _log.warning("raft_thread_stalled", extra={"stalled_ms": round(stalled_ms)})

    def _tell(self, callback: Callable[[Any], None], what: object) -> None:
        loop = errors.required(self._loop, "not started")
        try:
            loop.call_soon_threadsafe(callback, what)
        except RuntimeError:
            return  # the loop is closed: the process ends

    def _set_status(self, status: RaftStatus) -> None:
        self.status = status
        self.on_status(status)

    # --- proposals

    async def propose(self, command: bytes, timeout_s: float, *, is_unknown: bool = False) -> bytes:
        """Have a ControlCommand applied; its encoded ControlResult.

        `is_unknown`: it was proposed before, and may have been applied.

        Raises:
            GenerationEnded: see there.
            Unavailable: it was not applied and never will be.
            Timeout: it is unknown; the same command (with its request id) may be proposed again.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    result, reason = await self._attempt(command)
                    if reason == _ENDED:
                        raise GenerationEnded
                    if result is not None:
                        return result
                    definite = _DEFINITE.get(reason)
                    if definite is not None and not is_unknown:
                        raise errors.Unavailable(definite)
                    # An earlier attempt may yet be applied: from now on only an answer will do.
                    is_unknown = is_unknown or definite is None
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError as error:
            raise errors.Timeout("the control plane did not answer in time") from error

    async def _attempt(self, command: bytes) -> tuple[bytes | None, int]:
        if self._is_over:
            return None, _ENDED
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[tuple[bytes | None, int]] = loop.create_future()

        def on_applied(result: bytes | None, reason: int) -> None:
            if not answered.done():
                answered.set_result((result, reason))

        def callback(result: bytes | None, reason: int) -> None:
            loop.call_soon_threadsafe(on_applied, result, reason)

        self._answers.add(answered)
        self._node.submit(command, callback)
        try:
            async with asyncio.timeout(self._attempt_s):
                return await answered
        except TimeoutError:
            return None, FAIL_REASON.UNKNOWN_OUTCOME
        finally:
            self._answers.discard(answered)
