"""Receipts of answers, as nodes write them."""

from hourwheel.formats.receipt import Receipt
from node.broker.engine import Engine
from node.contracts.broker import Delivery


def receipt_of(engine: Engine, delivery: Delivery) -> Receipt:
    """Of all messages of an answer of this engine."""
    return Receipt(
        cluster=engine.shard.cluster,
        epoch=delivery.epoch,
        group_id=delivery.group_id,
        topic_queue=delivery.topic_queue,
        lease_id=delivery.lease_id,
        first_position=delivery.first_position,
        index=0,
        count=len(delivery.units),
    )
