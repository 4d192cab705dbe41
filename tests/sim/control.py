"""A simulated control plane: one linearizable object, behind a network that loses answers.

It has the rules of replication/control_state/commands.py and a simple election: who has been silent
for `SILENCE_MS` is taken for dead, and a master that is, or that resigns, is replaced by another
member of the in-sync set. A process that was seen to end is dead at once, and no lease of it is
waited for; one that is only silent is not. How it comes to be linearizable (Raft) is not this
simulation's business.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NO_EPOCH, NO_NODE, Epoch, NodeId, ShardId
from node.replica.effects import Assignment
from replication.control_state import member_commands
from replication.control_state.answers import Answer
from replication.control_state.membership import Membership, members_data
from replication.control_state.state import CODEC_VERSION, ControlState, Member, ShardInfo
from replication.rules.isr import IsrChange, ReplicasChange
from tests.sim.catalog_control import OwnedCatalog
from tests.sim.events import Events

SILENCE_MS = 500.0
ELECTION_MS = 50.0


class Registration(NamedTuple):
    """What a broker says when it starts."""

    node: NodeId
    boot_id: str
    is_sound: bool
    """Its log has all that it is known to have had."""
    epoch_seen: int
    master_seen: NodeId


class Word(NamedTuple):
    """What the control plane tells a broker."""

    assignment: Assignment
    ended: frozenset[str]
    """Boot ids of processes that have ended."""
    state: ControlState | None = None
    """Topics and groups, where they come from the control plane."""
    has_left: bool = False
    """The node is a member no more."""


@dataclass
class ControlPlane:
    """See the top of this file. Every method is one linearizable command.

    Invariants: the epoch grows with each election; the set never shrinks below `min_in_sync` at a
    master's word.
    """

    events: Events
    members: tuple[NodeId, ...]
    min_in_sync: int = 2
    epoch: Epoch = NO_EPOCH
    master: NodeId = NO_NODE
    version: int = 1
    epoch_seen: int = 0
    isr: dict[NodeId, str] = field(default_factory=dict)
    """Node -> boot id."""
    boots: dict[NodeId, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    """Node -> the last of its boot ids whose process has ended."""
    is_electing: bool = True
    membership: Membership | None = None
    """None: members and replicas do not change."""
    replicas: tuple[NodeId, ...] = ()
    """The replica list, where they do."""
    preferred: NodeId = NO_NODE
    """Elected where it can be: for directed tests."""
    masterships: list[tuple[int, NodeId]] = field(default_factory=list)
    owned: OwnedCatalog | None = None
    """Topics and groups; None: the log alone decides about them."""
    _heard_ms: dict[NodeId, float] = field(default_factory=dict)
    _answers: dict[tuple[str, int], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.isr = dict.fromkeys(self.members, "")
        self.events.later(ELECTION_MS, self._watch)

    @property
    def assignment(self) -> Assignment:
        """The state in force."""
        found = Assignment(Epoch(self.epoch), self.master, frozenset(self.isr), self.version)
        if self.membership is None:
            return found
        targets = {one for one in self.membership.members if one in self.boots}
        return found._replace(replicas=self.replicas, targets=tuple(sorted(targets)))

    @property
    def word(self) -> Word:
        """All that a broker hears."""
        state = None if self.owned is None else self.owned.state
        return Word(self.assignment, frozenset(self.ended.values()), state)

    def has_left(self, node: NodeId) -> bool:
        return self.membership is not None and node in self.membership.former_node_ids

    # -- commands of brokers

    def register(self, said: Registration) -> Word:
        """A new incarnation; also leaves the set where its log is not sound."""
        if self.has_left(said.node):
            return self.word._replace(has_left=True)
        before = (dict(self.isr), self.master)
        known = self.boots.get(said.node) == said.boot_id
        self.boots[said.node] = said.boot_id
        self._heard_ms[said.node] = self.events.now_ms
        if said.node in self.isr and not known:
            # A blank log is as good as any where there was nothing yet.
            if said.is_sound or not self.isr[said.node] or not self.epoch:
                self.isr[said.node] = said.boot_id
            elif len(self.isr) > 1:
                del self.isr[said.node]
        if self.master == said.node and not known:
            self.master = NO_NODE
        if said.epoch_seen > self.epoch or (
            said.epoch_seen == self.epoch and self.master and said.master_seen != self.master
        ):
            self.master = NO_NODE
        self.epoch_seen = max(self.epoch_seen, said.epoch_seen)
        self.version += before != (self.isr, self.master)
        return self.word

    def note_ended(self, node: NodeId, boot_id: str) -> None:
        """A node's control process saw its broker's process end.

        A report about another incarnation than the registered one is late, and changes nothing.
        """
        if self.boots.get(node) == boot_id != self.ended.get(node):
            self.ended[node] = boot_id
            if self.is_electing and self.master == node:
                self._elect(without=node)

    def ping(self, node: NodeId, boot_id: str, resigned_epoch: int = 0) -> Word | None:
        """A broker lives. None where it is not registered in this incarnation.

        `resigned_epoch`: the epoch that it wants to end.
        """
        if self.has_left(node):
            return self.word._replace(has_left=True)
        if self.boots.get(node) != boot_id:
            return None
        self._heard_ms[node] = self.events.now_ms
        if resigned_epoch:
            self.resign(Epoch(resigned_epoch))
        return self.word

    def change_isr(
        self, request: tuple[str, int], change: IsrChange, boots: dict[NodeId, str]
    ) -> bool:
        """Compare and set. A request that is tried again gets its first answer.

        Args:
            request: its id.
            change: the proposal.
            boots: the members' incarnations, as the master knows them.
        """
        if request not in self._answers:
            self._answers[request] = self._change_isr(change, boots)
        return self._answers[request]

    def _change_isr(self, change: IsrChange, boots: dict[NodeId, str]) -> bool:
        if change.epoch != self.epoch or change.version != self.version:
            return False
        if self.master not in change.members:
            return False
        after = {}
        for node in change.members:
            boot = self.isr.get(node, boots.get(node, ""))
            if node not in self.isr and self.boots.get(node) != boot:
                return False
            after[node] = boot
        if set(self.isr) - set(after) and len(after) < self.min_in_sync:
            return False
        self.isr = after
        self.version += 1
        self.events.note(f"control: in sync {sorted(after)} (version {self.version})")
        return True

    # -- members and replicas: the real rules, on a state that says what this object does

    def change_replicas(self, request: tuple[str, int], change: ReplicasChange) -> bool:
        """As `change_isr`."""
        if request not in self._answers:
            command = pb.ChangeReplicasCommand(
                shard=0,
                epoch=change.epoch,
                expected_version=change.version,
                node_ids=change.members,
            )
            self._answers[request] = self._take(
                member_commands.change_replicas(self._state(), command)
            )
        return self._answers[request]

    def change_members(self, members: dict[NodeId, str]) -> bool:
        """The stop-sign, and the next generation. Whether it was accepted."""
        assert self.membership is not None
        command = pb.ChangeMembersCommand(
            expected_generation=self.membership.generation, members=members_data(members)
        )
        state, result = member_commands.change_members(self._state(), command)
        if not self._take((state, result)):
            return False
        self._take((member_commands.next_state(state), result))
        self.events.note(f"control: members {sorted(members)}, in sync {sorted(self.isr)}")
        return True

    def _state(self) -> ControlState:
        assert self.membership is not None
        isr = tuple(Member(node, boot.encode()) for node, boot in sorted(self.isr.items()))
        master = Member(self.master, self.boots[self.master].encode()) if self.master else None
        shard = ShardInfo(
            ShardId(0), Epoch(self.epoch), master, isr, self.version, replicas=self.replicas
        )
        return ControlState(
            codec_version=CODEC_VERSION,
            cluster_id=bytes(16),
            min_in_sync=self.min_in_sync,
            shards={0: shard},
            membership=self.membership,
        )

    def _take(self, answer: Answer) -> bool:
        state, result = answer
        if result.outcome != pb.CONTROL_OUTCOME_OK:
            return False
        shard, self.membership = state.shards[0], state.membership
        self.isr = {one.node_id: one.boot_id.decode() for one in shard.isr}
        self.master = NO_NODE if shard.master is None else shard.master.node_id
        self.replicas, self.version = shard.replicas, shard.version
        return True

    def resign(self, epoch: Epoch) -> None:
        """The master of `epoch` asks to be replaced."""
        if epoch == self.epoch:
            self._elect(without=self.master)

    # -- election

    def _watch(self) -> None:
        self.events.later(ELECTION_MS, self._watch)
        if self.is_electing and (not self.master or not self.is_alive(self.master)):
            self._elect(without=NO_NODE)

    def is_alive(self, node: NodeId) -> bool:
        boot_id = self.boots.get(node)
        if boot_id is None or self.ended.get(node) == boot_id:
            return False
        return self.events.now_ms - self._heard_ms.get(node, float("-inf")) < SILENCE_MS

    def _elect(self, without: NodeId) -> None:
        able = [
            node
            for node, boot in sorted(self.isr.items())
            if node != without and self.is_alive(node) and self.boots[node] == boot
        ]
        if not able:
            return
        master = self.preferred if self.preferred in able else self.events.random.choice(able)
        self.epoch = Epoch(max(self.epoch, self.epoch_seen) + 1)
        self.master = master
        self.version += 1
        self.masterships.append((self.epoch, master))
        if self.owned is not None:
            self.owned.begin_epoch(self.epoch)
        self.events.note(f"control: epoch {self.epoch} is of {master}, in sync {sorted(self.isr)}")
