"""Where to go instead: what a node says that is not the master. Pure."""

from hourwheel import errors
from replication.control_state.state import ControlState


def not_master(state: ControlState | None, shard_id: int, me: str) -> errors.NotMaster:
    """The error, with the master's address and epoch where the control plane names another node.

    Args:
        state: as it is known here; None: it is not.
        shard_id: of which shard.
        me: this node, which does not serve, whatever the control plane says.
    """
    shard = None if state is None else state.shards.get(shard_id)
    if state is None or shard is None or shard.master is None or shard.master.node_id == me:
        return errors.NotMaster("no node is the master now; try again")
    master = shard.master.node_id
    address = state.nodes[master].api_address if master in state.nodes else ""
    return errors.NotMaster(
        f"node {master} is the master", master=master, master_address=address, epoch=shard.epoch
    )
