"""How a node's replica stands, for the control plane. Pure."""

from hourwheel.internal.v1.control_link_pb2 import ShardReport
from node.broker.disk_guard import DiskGuard
from node.replica.replica import Replica


def report_of(replica: Replica, guard: DiskGuard, *, resigns: bool) -> ShardReport:
    """What is known of log, epoch and disk; whether the node may lead, others know.

    `resigns`: it wants to be master no longer. Once it has stepped down, that counts only as long
    as nothing can be written: maybe nobody else can lead.
    """
    shard, assignment = replica.shard, replica.assignment
    last = shard.views.epochs[-1].epoch if shard.views.epochs else 0
    is_master = replica.mastership is not None or replica.is_elected
    return ShardReport(
        shard=shard.shard_id,
        epoch=assignment.epoch,
        last_epoch=max(last, replica.last_epoch),
        log_end=shard.log.flushed_end_offset,
        high_watermark=shard.high_watermark,
        is_resigning=resigns and (is_master or guard.is_exhausted),
        is_low=guard.is_low,
        has_retired=assignment.master == replica.who.me and not is_master,
    )
