"""A simulated node's calls to the control plane: lost, repeated, late."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hourwheel import errors
from replication.rules.isr import IsrChange, ReplicasChange
from tests.sim.catalog_control import NodeCatalogControl
from tests.sim.control import Registration, Word

if TYPE_CHECKING:
    from tests.sim.cluster_node import SimNode

POLL_MS: Final = 60.0
ASK_AGAIN_MS: Final = 200.0
FAREWELL_MS: Final = 500.0
"""How long a control process survives its broker, and says so."""


class ControlLink:
    """One life of a node, as the control plane knows it.

    Attributes:
        is_registered: the control plane knows this life.
        resigned_epoch: the epoch that the node wants to end; 0 for none.
    """

    def __init__(self, node: "SimNode", *, is_sound: bool) -> None:
        self._node, self._is_sound = node, is_sound
        self.is_registered = False
        self.resigned_epoch = 0
        self._ask_count = 0
        self._answered: set[int] = set()
        self.catalog = NodeCatalogControl(node)

    def start(self) -> None:
        """Register, and hear from time to time who is master."""
        self._register()
        self._poll()

    def _call(self, command: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Ask the control plane; the question or the answer may be lost."""
        node, network = self._node, self._node.cluster.network

        def reach() -> None:
            answer = command()
            network.call("control", node.name, lambda: node.later(0, lambda: then(answer)))

        network.call(node.name, "control", reach)

    def ask(self, command: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """As `_call`, for others."""
        self._call(command, then)

    def _register(self) -> None:
        node = self._node
        seen = node.seen
        said = Registration(node.name, node.boot_id, self._is_sound, seen.epoch, seen.master)
        self._call(lambda: node.cluster.control.register(said), self._on_known)

    def _on_known(self, word: Word) -> None:
        node = self._node
        if word.has_left:
            node.leave()
            return
        self.is_registered = True
        node.replica.on_ended(word.ended)
        try:
            node.replica.on_assignment(word.assignment, node.monotonic_ms())
        except errors.DiskFull:
            node.make_room()
        node.act()
        self.catalog.hear(word.state)  # behind: who is not the master any more has closed

    def _poll(self) -> None:
        node = self._node
        node.later(POLL_MS * node.cluster.events.random.uniform(0.5, 1.5), self._poll)
        control, boot_id, resigned = node.cluster.control, node.boot_id, self.resigned_epoch

        def then(word: Word | None) -> None:
            if word is None:
                self._register()
            else:
                self._on_known(word)

        self._call(lambda: control.ping(node.name, boot_id, resigned), then)

    def on_process_ended(self) -> None:
        """Its process was killed, and the control process beside it sees that."""
        events = self._node.cluster.events
        node, boot_id = self._node, self._node.boot_id
        until_ms = events.now_ms + FAREWELL_MS

        def report() -> None:
            control, network = node.cluster.control, node.cluster.network
            network.call(node.name, "control", lambda: control.note_ended(node.name, boot_id))
            if events.now_ms < until_ms:
                events.later(POLL_MS, report)

        events.later(events.random.uniform(0.5, POLL_MS), report)

    def propose_isr(self, change: IsrChange) -> None:
        """Propose a change of the in-sync set."""
        master, control = self._node.replica.rules, self._node.cluster.control
        if master is not None and master.start.epoch == change.epoch:
            boots = {name: one.boot_id for name, one in master.followers.items()}
            self._propose(
                change,
                lambda request: control.change_isr(request, change, boots),
                lambda: master.isr.on_refused(change),
            )

    def propose_replicas(self, change: ReplicasChange) -> None:
        """Propose a change of the replica list."""
        master, control = self._node.replica.rules, self._node.cluster.control
        if master is not None and master.start.epoch == change.epoch:
            self._propose(
                change,
                lambda request: control.change_replicas(request, change),
                lambda: master.on_replicas_refused(change),
            )

    def _propose(
        self,
        change: IsrChange | ReplicasChange,
        command: Callable[[tuple[str, int]], bool],
        on_refused: Callable[[], None],
    ) -> None:
        self._ask_count += 1
        self._ask(self._ask_count, change, command, on_refused)

    def _ask(
        self,
        number: int,
        change: IsrChange | ReplicasChange,
        command: Callable[[tuple[str, int]], bool],
        on_refused: Callable[[], None],
    ) -> None:
        """Ask until there is an answer: nothing else tells what became of it."""
        node = self._node
        master = node.replica.rules
        if number in self._answered or master is None or master.start.epoch != change.epoch:
            return
        request = node.boot_id, number

        def then(is_done: bool) -> None:
            if number not in self._answered:
                self._answered.add(number)
                if not is_done and node.replica.rules is master:
                    on_refused()

        self._call(lambda: command(request), then)
        node.later(ASK_AGAIN_MS, lambda: self._ask(number, change, command, on_refused))
