"""How a node's replica stands, for the control plane. Pure."""

from hourwheel.wire.control_link_pb2 import ShardReport
from node.replica import Replica


def report_of(replica: Replica) -> ShardReport:
    """What is known of the log and the epoch; whether it may lead, others know."""
    shard = replica.shard
    last = shard.views.epochs[-1].epoch if shard.views.epochs else 0
    return ShardReport(
        shard=shard.shard_id,
        epoch=replica.assignment.epoch,
        last_epoch=max(last, replica.last_epoch),
        log_end=shard.log.flushed_end_offset,
        high_watermark=shard.high_watermark,
    )
