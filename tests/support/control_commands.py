"""Commands for the control plane's state, and a state that they are applied to."""

from itertools import count
from typing import Any, Final

from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control_state.commands import apply_command, make_command
from replication.control_state.state import ControlState

CLUSTER_ID: Final = b"c" * 16
NODE_IDS: Final = ("n1", "n2", "n3")


def boot(number: int) -> bytes:
    """A boot id."""
    return number.to_bytes(16, "big")


def register(node_id: NodeId, boot_id: bytes, *, is_sound: bool = True, **fields: Any) -> Any:
    return pb.RegisterNodeCommand(node_id=node_id, boot_id=boot_id, isr_is_sound=is_sound, **fields)


class StateWorld:
    """Applies commands one after the other, with a new request id each."""

    def __init__(self) -> None:
        self.state = ControlState()
        self._ids = count(1)

    def raw(self, *, version: int | None = None, **which: Any) -> bytes:
        command = make_command(next(self._ids).to_bytes(16, "big"), **which)
        if version is not None:
            command.codec_version = version
        return command.SerializeToString(deterministic=True)

    def apply(self, raw: bytes) -> pb.ControlResult:
        self.state, answer = apply_command(self.state, raw)
        self.state.check()
        return pb.ControlResult.FromString(answer)

    def do(self, **command: Any) -> pb.ControlResult:
        return self.apply(self.raw(**command))

    def ok(self, **command: Any) -> pb.ControlResult:
        result = self.do(**command)
        assert result.outcome == pb.CONTROL_OUTCOME_OK, result
        return result

    def found(self, *, min_in_sync: int = 2, shard_count: int = 1) -> None:
        """A cluster of three, all registered with boot ids 1, 2, 3."""
        self.ok(
            bootstrap=pb.BootstrapCommand(
                cluster_id=CLUSTER_ID,
                min_in_sync=min_in_sync,
                shard_count=shard_count,
                node_ids=NODE_IDS,
            )
        )
        for number, node_id in enumerate(NODE_IDS, 1):
            self.ok(register_node=register(NodeId(node_id), boot(number)))

    def elect(self, number: int, *, expected_epoch: int | None = None) -> pb.ControlResult:
        """Try to make node `n<number>` master, in its boot `number`."""
        epoch = self.state.shards[0].epoch if expected_epoch is None else expected_epoch
        return self.do(
            elect_master=pb.ElectMasterCommand(
                expected_epoch=epoch, master_node_id=f"n{number}", master_boot_id=boot(number)
            )
        )

    def change_isr(self, *numbers: int) -> pb.ControlResult:
        """Try to change the set to nodes `n<number>`, with what the state has now."""
        shard = self.state.shards[0]
        return self.do(
            change_isr=pb.ChangeIsrCommand(
                epoch=shard.epoch,
                expected_version=shard.version,
                isr=[pb.IsrMember(node_id=f"n{n}", boot_id=boot(n)) for n in numbers],
            )
        )

    @property
    def isr(self) -> list[tuple[str, int]]:
        """Of shard 0: node id, number of the boot."""
        return [(m.node_id, int.from_bytes(m.boot_id, "big")) for m in self.state.shards[0].isr]

    @property
    def master(self) -> str | None:
        master = self.state.shards[0].master
        return master.node_id if master else None
